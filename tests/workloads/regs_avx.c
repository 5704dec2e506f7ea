//! The AVX registers, whose upper halves SSE code does not see, of a thread that runs in user code.
// fault: skip:xstate
#define REGISTER_SIZE 32
#define REGISTERS (16 * 32)
#define LOAD \
    "vmovups 0(%%rdi), %%ymm0\n" "vmovups 32(%%rdi), %%ymm1\n" "vmovups 64(%%rdi), %%ymm2\n" \
    "vmovups 96(%%rdi), %%ymm3\n" "vmovups 128(%%rdi), %%ymm4\n" "vmovups 160(%%rdi), %%ymm5\n" \
    "vmovups 192(%%rdi), %%ymm6\n" "vmovups 224(%%rdi), %%ymm7\n" "vmovups 256(%%rdi), %%ymm8\n" \
    "vmovups 288(%%rdi), %%ymm9\n" "vmovups 320(%%rdi), %%ymm10\n" "vmovups 352(%%rdi), %%ymm11\n" \
    "vmovups 384(%%rdi), %%ymm12\n" "vmovups 416(%%rdi), %%ymm13\n" "vmovups 448(%%rdi), %%ymm14\n" \
    "vmovups 480(%%rdi), %%ymm15\n"
#define STORE \
    "vmovups %%ymm0, 0(%%rsi)\n" "vmovups %%ymm1, 32(%%rsi)\n" "vmovups %%ymm2, 64(%%rsi)\n" \
    "vmovups %%ymm3, 96(%%rsi)\n" "vmovups %%ymm4, 128(%%rsi)\n" "vmovups %%ymm5, 160(%%rsi)\n" \
    "vmovups %%ymm6, 192(%%rsi)\n" "vmovups %%ymm7, 224(%%rsi)\n" "vmovups %%ymm8, 256(%%rsi)\n" \
    "vmovups %%ymm9, 288(%%rsi)\n" "vmovups %%ymm10, 320(%%rsi)\n" "vmovups %%ymm11, 352(%%rsi)\n" \
    "vmovups %%ymm12, 384(%%rsi)\n" "vmovups %%ymm13, 416(%%rsi)\n" "vmovups %%ymm14, 448(%%rsi)\n" \
    "vmovups %%ymm15, 480(%%rsi)\n"
#define CLOBBERS \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define RESET __asm__ volatile("vzeroupper")
#define NEEDS "avx"
#include "registers.h"
static void make_registers(unsigned char *bytes, unsigned seed) { fill(bytes, seed, 0, REGISTERS); }
