//! A guard page opened since: a touch of it faults again, with the address told to the handler.
// fault: skip:prot
#include "workload.h"

static unsigned char *area;
static volatile long fault_address;
static sigjmp_buf back;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    fault_address = (long)info->si_addr;
    siglongjmp(back, 1);
}
static void setup(void) {
    area = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(area, 1, 0, 3 * PAGE);
    MUST(mprotect(area + PAGE, PAGE, PROT_NONE));
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    MUST(sigaction(SIGSEGV, &action, NULL));
}
static void touch(long offset) {
    fault_address = 0;
    if (sigsetjmp(back, 1) == 0) ((volatile unsigned char *)area)[offset] ^= 0;
}
static void check(void) {
    touch(PAGE + 123);
    WANT_HEX("address of the fault in the guard page", area + PAGE + 123, fault_address);
    touch(100);
    WANT_HEX("no fault before it", 0, fault_address);
    touch(2 * PAGE + 1);
    WANT_HEX("no fault after it", 0, fault_address);
}
static void disturb(int round) {
    MUST(mprotect(area + PAGE, PAGE, round % 2 ? PROT_READ | PROT_WRITE : PROT_READ | PROT_WRITE | PROT_EXEC));
    fill(area + PAGE, round, 0, PAGE);
    if (round % 2 == 0) MUST(mprotect(area, PAGE, PROT_NONE));
}
