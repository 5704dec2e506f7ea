//! The x87 stack and control word and MXCSR of a thread that runs in user code.
// fault: skip:xstate
#define REGISTER_SIZE 8
#define REGISTERS (8 * 8 + 8)
#define LOAD \
    "fninit\n fldcw 64(%%rdi)\n ldmxcsr 68(%%rdi)\n" \
    "fldl 56(%%rdi)\n fldl 48(%%rdi)\n fldl 40(%%rdi)\n fldl 32(%%rdi)\n" \
    "fldl 24(%%rdi)\n fldl 16(%%rdi)\n fldl 8(%%rdi)\n fldl 0(%%rdi)\n"
#define STORE \
    "fstpl 0(%%rsi)\n fstpl 8(%%rsi)\n fstpl 16(%%rsi)\n fstpl 24(%%rsi)\n" \
    "fstpl 32(%%rsi)\n fstpl 40(%%rsi)\n fstpl 48(%%rsi)\n fstpl 56(%%rsi)\n" \
    "fnstcw 64(%%rsi)\n movw $0, 66(%%rsi)\n stmxcsr 68(%%rsi)\n fninit\n"
#define CLOBBERS "st"
#define RESET do { unsigned plain = 0x1f80; __asm__ volatile("ldmxcsr %0" : : "m"(plain)); } while (0)
#include "registers.h"
static void make_registers(unsigned char *bytes, unsigned seed) {
    double values[8];
    for (int i = 0; i < 8; i++) values[i] = byte_at(seed, i) / 8.0 + seed;
    memcpy(bytes, values, 64);
    // All exceptions masked; rounding and precision differ by seed.
    uint16_t control[2] = {(uint16_t)(0x037f ^ (seed % 4) << 10), 0};
    uint32_t mxcsr = 0x1f80 | (seed % 4) << 13 | (seed & 1) << 15;
    memcpy(bytes + 64, control, 4);
    memcpy(bytes + 68, &mxcsr, 4);
}
