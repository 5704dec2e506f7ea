//! A deep stack: the frames of a thread that is 200 calls down, and it can return through all of them.
// fault: skip:pages
#include "workload.h"

#define DEPTH 200
static struct worker worker;
static unsigned char *frames[DEPTH];
static volatile int seed;
static sem_t go_up, arrived;

static long descend(int depth) {
    unsigned char frame[3000];
    fill(frame, seed + depth, 0, sizeof frame);
    frames[depth] = frame;
    if (depth == DEPTH - 1) {
        sem_post(&arrived);
        while (sem_wait(&go_up)) {}
    } else if (descend(depth + 1)) {
        return depth + 1;
    }
    return differs_at(100 + depth, 0, frame, sizeof frame) >= 0 ? depth + 1 : 0;
}
static long answer(struct worker *w, long question) {
    (void)w;
    seed = (int)question;
    return descend(0);
}
static void send_down(int with) {
    worker.question = with;
    sem_post(&worker.go);
    while (sem_wait(&arrived)) {}
}
static void setup(void) {
    sem_init(&go_up, 0, 0);
    sem_init(&arrived, 0, 0);
    worker_start(&worker, answer);
    send_down(100);
}
static void check(void) {
    for (int i = 0; i < DEPTH; i++) WANT_CONTENT("a frame of the stack", 100 + i, 0, frames[i], 3000);
    sem_post(&go_up);
    struct timespec until = deadline_in_ms(ANSWER_WITHIN_MS);
    WANT("the thread returns", sem_timedwait(&worker.done, &until) == 0);
    WANT_EQ("the first frame that was wrong on the way up", 0, worker.reply);
    send_down(100);
}
static void disturb(int round) {
    sem_post(&go_up);
    while (sem_wait(&worker.done)) {}
    send_down(100 + round);
}
