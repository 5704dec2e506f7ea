//! Anonymous shared memory between a parent and its child: its bytes, and that it is still the same memory for both.
// fault: skip:shared_memory
#include "workload.h"

#define LENGTH (40 * PAGE)
static unsigned char *shared;
static struct child child;

static long answer(long question) {
    if (question < 0) return differs_at(5, 0, shared, LENGTH);
    fill(shared + PAGE, (unsigned)question, 0, 3 * PAGE);
    return 0;
}
static void setup(void) {
    shared = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fill(shared, 5, 0, LENGTH);
    child_start(&child, answer);
}
static void check(void) {
    long reply;
    WANT_CONTENT("shared memory in the parent", 5, 0, shared, LENGTH);
    WANT("the child answers", ask_child(&child, -1, &reply));
    WANT_EQ("first wrong byte in the child", -1, reply);
    WANT("the child writes", ask_child(&child, 77, &reply));
    WANT_CONTENT("what the child wrote, in the parent", 77, 0, shared + PAGE, 3 * PAGE);
    fill(shared, 5, 0, LENGTH);
    WANT("the child answers", ask_child(&child, -1, &reply));
    WANT_EQ("first byte where the child does not see the parent's store", -1, reply);
}
static void disturb(int round) {
    long reply;
    fill(shared + 10 * PAGE, 20 + round, 0, 20 * PAGE);
    if (!ask_child(&child, 30 + round, &reply)) DIE("the child does not answer");
}
