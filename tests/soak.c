//! The program of `soak`: four children, four threads in each process, its streams on a terminal when it has one, pipes that
//! carry bytes all the time, a log, changing memory. Between two lines of the protocol everything goes on; what a check looks at is counted.
#include "workloads/workload.h"
#include <termios.h>

#define CHILDREN 4
#define THREADS 4
#define PAGES 256
static struct child children[CHILDREN];
static struct worker workers[THREADS];
static unsigned char *memory;
static long total;
static int traffic[2], log_file, log_lines;

static long answer_thread(struct worker *worker, long question) {
    size_t i = worker - workers;
    // Bytes through a pipe and back, a page of memory, a wait with a time-out that ends, and one that is cut.
    char byte = (char)question, back = 0;
    if (write(traffic[1], &byte, 1) != 1 || read(traffic[0], &back, 1) != 1) return -1;
    fill(memory + (question * 13 + i) % PAGES * PAGE, (unsigned)question, 0, PAGE);
    struct timespec short_time = {0, 200000};
    if (nanosleep(&short_time, NULL)) return -2;
    struct epoll_event event;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int got = epoll_wait(epoll, &event, 1, 1);
    int error = errno;
    close(epoll);
    if (got) return error == EINTR ? -3 : -4;
    return question;
}
static void start_threads(void) {
    if (pipe2(traffic, O_CLOEXEC)) DIE("pipe");
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < THREADS; i++) worker_start(&workers[i], answer_thread);
}
static long work(long question) {
    for (int i = 0; i < THREADS; i++) {
        long reply = -9;
        if (!ask(&workers[i], question, &reply) || reply != question) return reply < 0 ? reply : -5;
    }
    total += question;
    return total;
}
static long answer_child(long question) {
    if (question == -1) {
        start_threads();
        return 0;
    }
    return question == 0 ? total : work(question);
}
// Raw, so that the protocol goes through as it does through a pipe; the time-out of reads is what changes.
static void set_terminal(int tenths) {
    struct termios settings;
    if (tcgetattr(0, &settings)) return; // no terminal
    cfmakeraw(&settings);
    settings.c_cc[VTIME] = tenths;
    MUST(tcsetattr(0, TCSANOW, &settings));
}
static void setup(void) {
    long reply;
    for (int i = 0; i < CHILDREN; i++) {
        child_start(&children[i], answer_child);
        if (!ask_child(&children[i], -1, &reply)) DIE("a child does not answer");
    }
    start_threads();
    set_terminal(0);
    log_file = MUST(open("log", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}
// Everything is at rest here: each process has added up the same, the log has one line each, nothing waits anywhere.
static void check(void) {
    long reply;
    struct stat status;
    struct termios settings;
    for (int i = 0; i < CHILDREN; i++) {
        WANT("a child answers", ask_child(&children[i], 0, &reply));
        WANT_EQ("total of a child", total, reply);
    }
    WANT_EQ("threads", THREADS + 1, thread_count());
    WANT_CALL(fstat(log_file, &status));
    WANT_EQ("bytes of the log", log_lines * 8, status.st_size);
    if (!tcgetattr(0, &settings)) WANT_EQ("time-out of the terminal", 0, settings.c_cc[VTIME]);
    // One step forth that is kept, so that every cycle starts from another state.
    disturb(1);
    set_terminal(0);
    if (log_lines > 1000) {
        WANT_CALL(ftruncate(log_file, 0));
        log_lines = 0;
    }
}
static void disturb(int round) {
    long reply;
    set_terminal(round);
    for (int step = 0; step < round; step++) {
        for (int i = 0; i < CHILDREN; i++)
            if (!ask_child(&children[i], 3 + step, &reply) || reply < 0) FAILED("a child: wanted a total, got %ld", reply);
        reply = work(3 + step);
        if (reply < 0) FAILED("work: wanted a total, got %ld", reply);
        char line[32];
        snprintf(line, sizeof line, "%07d\n", log_lines++ % 10000000);
        if (write(log_file, line, 8) != 8) FAILED("write to the log: %s", strerror(errno));
    }
}
