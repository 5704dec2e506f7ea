//! Pages that a parent and a child share until one writes: each keeps its own view, both go back.
// fault: skip:pages
#include "workload.h"

#define PAGES 48
static unsigned char *area;
static struct child child;

// In the child pages 1, 4, 7.. were written after the fork; in the parent 2, 5, 8..
static long answer(long question) {
    if (question == -1) {
        for (int i = 0; i < PAGES; i += 1)
            if (differs_at(i % 3 == 1 ? 200 : 100, i * PAGE, area + i * PAGE, PAGE) >= 0) return i;
        return -1;
    }
    for (int i = 0; i < PAGES; i++) fill(area + i * PAGE, question, question < 1000 ? 0 : i * PAGE, PAGE);
    return 0;
}
static long answer_first(long question) {
    if (question == -2) {
        for (int i = 1; i < PAGES; i += 3) fill(area + i * PAGE, 200, i * PAGE, PAGE);
        return 0;
    }
    return answer(question);
}
static void setup(void) {
    long reply;
    area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(area, 100, 0, PAGES * PAGE);
    child_start(&child, answer_first);
    if (!ask_child(&child, -2, &reply)) DIE("the child does not answer");
    for (int i = 2; i < PAGES; i += 3) fill(area + i * PAGE, 300, i * PAGE, PAGE);
}
static void check(void) {
    long reply;
    for (int i = 0; i < PAGES; i++)
        WANT_CONTENT("a page of the parent", i % 3 == 2 ? 300 : 100, i * PAGE, area + i * PAGE, PAGE);
    WANT("the child answers", ask_child(&child, -1, &reply));
    WANT_EQ("first wrong page of the child", -1, reply);
}
static void disturb(int round) {
    long reply;
    for (int i = round; i < PAGES; i += 2) fill(area + i * PAGE, 700 + round, 0, PAGE);
    if (!ask_child(&child, 500 + round, &reply)) DIE("the child does not answer");
}
