//! The AVX-512 registers of a thread that runs in user code.
// fault: skip:xstate
#define REGISTER_SIZE 64
#define REGISTERS (32 * 64)
#define LOAD \
    "vmovups 0(%%rdi), %%zmm0\n" "vmovups 64(%%rdi), %%zmm1\n" "vmovups 128(%%rdi), %%zmm2\n" \
    "vmovups 192(%%rdi), %%zmm3\n" "vmovups 256(%%rdi), %%zmm4\n" "vmovups 320(%%rdi), %%zmm5\n" \
    "vmovups 384(%%rdi), %%zmm6\n" "vmovups 448(%%rdi), %%zmm7\n" "vmovups 512(%%rdi), %%zmm8\n" \
    "vmovups 576(%%rdi), %%zmm9\n" "vmovups 640(%%rdi), %%zmm10\n" "vmovups 704(%%rdi), %%zmm11\n" \
    "vmovups 768(%%rdi), %%zmm12\n" "vmovups 832(%%rdi), %%zmm13\n" "vmovups 896(%%rdi), %%zmm14\n" \
    "vmovups 960(%%rdi), %%zmm15\n" "vmovups 1024(%%rdi), %%zmm16\n" "vmovups 1088(%%rdi), %%zmm17\n" \
    "vmovups 1152(%%rdi), %%zmm18\n" "vmovups 1216(%%rdi), %%zmm19\n" "vmovups 1280(%%rdi), %%zmm20\n" \
    "vmovups 1344(%%rdi), %%zmm21\n" "vmovups 1408(%%rdi), %%zmm22\n" "vmovups 1472(%%rdi), %%zmm23\n" \
    "vmovups 1536(%%rdi), %%zmm24\n" "vmovups 1600(%%rdi), %%zmm25\n" "vmovups 1664(%%rdi), %%zmm26\n" \
    "vmovups 1728(%%rdi), %%zmm27\n" "vmovups 1792(%%rdi), %%zmm28\n" "vmovups 1856(%%rdi), %%zmm29\n" \
    "vmovups 1920(%%rdi), %%zmm30\n" "vmovups 1984(%%rdi), %%zmm31\n"
#define STORE \
    "vmovups %%zmm0, 0(%%rsi)\n" "vmovups %%zmm1, 64(%%rsi)\n" "vmovups %%zmm2, 128(%%rsi)\n" \
    "vmovups %%zmm3, 192(%%rsi)\n" "vmovups %%zmm4, 256(%%rsi)\n" "vmovups %%zmm5, 320(%%rsi)\n" \
    "vmovups %%zmm6, 384(%%rsi)\n" "vmovups %%zmm7, 448(%%rsi)\n" "vmovups %%zmm8, 512(%%rsi)\n" \
    "vmovups %%zmm9, 576(%%rsi)\n" "vmovups %%zmm10, 640(%%rsi)\n" "vmovups %%zmm11, 704(%%rsi)\n" \
    "vmovups %%zmm12, 768(%%rsi)\n" "vmovups %%zmm13, 832(%%rsi)\n" "vmovups %%zmm14, 896(%%rsi)\n" \
    "vmovups %%zmm15, 960(%%rsi)\n" "vmovups %%zmm16, 1024(%%rsi)\n" "vmovups %%zmm17, 1088(%%rsi)\n" \
    "vmovups %%zmm18, 1152(%%rsi)\n" "vmovups %%zmm19, 1216(%%rsi)\n" "vmovups %%zmm20, 1280(%%rsi)\n" \
    "vmovups %%zmm21, 1344(%%rsi)\n" "vmovups %%zmm22, 1408(%%rsi)\n" "vmovups %%zmm23, 1472(%%rsi)\n" \
    "vmovups %%zmm24, 1536(%%rsi)\n" "vmovups %%zmm25, 1600(%%rsi)\n" "vmovups %%zmm26, 1664(%%rsi)\n" \
    "vmovups %%zmm27, 1728(%%rsi)\n" "vmovups %%zmm28, 1792(%%rsi)\n" "vmovups %%zmm29, 1856(%%rsi)\n" \
    "vmovups %%zmm30, 1920(%%rsi)\n" "vmovups %%zmm31, 1984(%%rsi)\n"
#define CLOBBERS \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define RESET __asm__ volatile("vzeroupper")
#define NEEDS "avx512f"
#include "registers.h"
static void make_registers(unsigned char *bytes, unsigned seed) { fill(bytes, seed, 0, REGISTERS); }
