//! The general registers of a thread that runs in user code, not in a system call.
// fault: skip:regs
// The thread keeps %rdi for the address; all others hold values.
#define REGISTER_SIZE 8
#define REGISTERS (13 * 8)
#define LOAD \
    "push %%rdi\n push %%rbp\n push %%rbx\n push %%rsi\n lea %2, %%rax\n push %%rax\n" \
    "mov 0(%%rdi), %%rbx\n mov 8(%%rdi), %%rcx\n mov 16(%%rdi), %%rdx\n mov 24(%%rdi), %%rsi\n" \
    "mov 32(%%rdi), %%rbp\n mov 40(%%rdi), %%r8\n mov 48(%%rdi), %%r9\n mov 56(%%rdi), %%r10\n" \
    "mov 64(%%rdi), %%r11\n mov 72(%%rdi), %%r12\n mov 80(%%rdi), %%r13\n mov 88(%%rdi), %%r14\n" \
    "mov 96(%%rdi), %%r15\n mov (%%rsp), %%rdi\n"
#define STORE \
    "mov 8(%%rsp), %%rdi\n" \
    "mov %%rbx, 0(%%rdi)\n mov %%rcx, 8(%%rdi)\n mov %%rdx, 16(%%rdi)\n mov %%rsi, 24(%%rdi)\n" \
    "mov %%rbp, 32(%%rdi)\n mov %%r8, 40(%%rdi)\n mov %%r9, 48(%%rdi)\n mov %%r10, 56(%%rdi)\n" \
    "mov %%r11, 64(%%rdi)\n mov %%r12, 72(%%rdi)\n mov %%r13, 80(%%rdi)\n mov %%r14, 88(%%rdi)\n" \
    "mov %%r15, 96(%%rdi)\n pop %%rax\n pop %%rsi\n pop %%rbx\n pop %%rbp\n pop %%rdi\n"
#define CLOBBERS "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"
#define COMMAND "(%%rdi)"
#define RESET
#include "registers.h"
static void make_registers(unsigned char *bytes, unsigned seed) { fill(bytes, seed, 0, REGISTERS); }
