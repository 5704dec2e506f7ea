// A thread that spins in user code with its registers full. The values live nowhere else while it spins: it stores them
// only when told to. `REGISTERS` (bytes), `LOAD` and `STORE` (assembler, %0 is the address) come from the workload.
#pragma once
#include "workload.h"

#ifndef COMMAND
#define COMMAND "%2"
#endif

enum { SPIN, STORE_THEM, LOAD_OTHERS };
static unsigned char loaded[REGISTERS] __attribute__((aligned(64))), stored[REGISTERS] __attribute__((aligned(64)));
static volatile int spin_command;
static pthread_t spinner;

static void make_registers(unsigned char *bytes, unsigned seed); // fills REGISTERS bytes

static void *spin(void *unused) {
    for (;;) {
        __asm__ volatile(LOAD "\n1: pause\n cmpl $0, " COMMAND "\n je 1b\n" STORE
                         :
                         : "D"(loaded), "S"(stored), "m"(spin_command)
                         : "memory", "cc", CLOBBERS);
        RESET;
        if (spin_command == STORE_THEM) memcpy(loaded, stored, REGISTERS);
        __atomic_store_n(&spin_command, SPIN, __ATOMIC_SEQ_CST);
    }
    return unused;
}
static bool command(int what) {
    __atomic_store_n(&spin_command, what, __ATOMIC_SEQ_CST);
    for (long until = now_ms() + ANSWER_WITHIN_MS; spin_command != SPIN; pause_ms(1))
        if (now_ms() > until) return false;
    return true;
}
static void setup(void) {
#ifdef NEEDS
    if (!__builtin_cpu_supports(NEEDS)) SKIP("this CPU has no " NEEDS);
#endif
    make_registers(loaded, 1);
    if (pthread_create(&spinner, NULL, spin, NULL)) DIE("pthread_create");
    if (!command(STORE_THEM)) DIE("the thread does not spin");
}
static void check(void) {
    unsigned char want[REGISTERS];
    make_registers(want, 1);
    memset(stored, 0, REGISTERS);
    WANT("the spinning thread stores its registers", command(STORE_THEM));
    for (int i = 0; i < REGISTERS; i++)
        if (stored[i] != want[i])
            FAILED("byte %d of register %d: wanted %#x, got %#x", i % REGISTER_SIZE, i / REGISTER_SIZE, want[i], stored[i]);
}
static void disturb(int round) {
    make_registers(loaded, 10 + round);
    if (!command(LOAD_OTHERS)) DIE("the thread does not spin");
    // Nothing of the old values is left in memory that the thread would load.
    if (!command(STORE_THEM)) DIE("the thread does not spin");
}
