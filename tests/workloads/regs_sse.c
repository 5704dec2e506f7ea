//! The SSE registers of a thread that runs in user code.
// fault: skip:xstate
#define REGISTER_SIZE 16
#define REGISTERS (16 * 16)
#define LOAD \
    "movups 0(%%rdi), %%xmm0\n" "movups 16(%%rdi), %%xmm1\n" "movups 32(%%rdi), %%xmm2\n" \
    "movups 48(%%rdi), %%xmm3\n" "movups 64(%%rdi), %%xmm4\n" "movups 80(%%rdi), %%xmm5\n" \
    "movups 96(%%rdi), %%xmm6\n" "movups 112(%%rdi), %%xmm7\n" "movups 128(%%rdi), %%xmm8\n" \
    "movups 144(%%rdi), %%xmm9\n" "movups 160(%%rdi), %%xmm10\n" "movups 176(%%rdi), %%xmm11\n" \
    "movups 192(%%rdi), %%xmm12\n" "movups 208(%%rdi), %%xmm13\n" "movups 224(%%rdi), %%xmm14\n" \
    "movups 240(%%rdi), %%xmm15\n"
#define STORE \
    "movups %%xmm0, 0(%%rsi)\n" "movups %%xmm1, 16(%%rsi)\n" "movups %%xmm2, 32(%%rsi)\n" \
    "movups %%xmm3, 48(%%rsi)\n" "movups %%xmm4, 64(%%rsi)\n" "movups %%xmm5, 80(%%rsi)\n" \
    "movups %%xmm6, 96(%%rsi)\n" "movups %%xmm7, 112(%%rsi)\n" "movups %%xmm8, 128(%%rsi)\n" \
    "movups %%xmm9, 144(%%rsi)\n" "movups %%xmm10, 160(%%rsi)\n" "movups %%xmm11, 176(%%rsi)\n" \
    "movups %%xmm12, 192(%%rsi)\n" "movups %%xmm13, 208(%%rsi)\n" "movups %%xmm14, 224(%%rsi)\n" \
    "movups %%xmm15, 240(%%rsi)\n"
#define CLOBBERS \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define RESET 
#include "registers.h"
static void make_registers(unsigned char *bytes, unsigned seed) { fill(bytes, seed, 0, REGISTERS); }
