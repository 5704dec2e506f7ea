// The protocol every workload speaks, and the few things most of them need. A workload defines `setup`, `check` and
// `disturb`; this header has `main`.
//
//   argv[1]  a directory of its own, made when absent; the program moves into it
//   argv[2]  a directory that lies in the lower layer of a box (natively: a copy the harness made)
//
// It prints READY, then answers lines on standard input:
//   check [LO HI]   OK, or FAIL <what, wanted, got>. LO..HI: how many milliseconds were undone by the last rollback,
//                   between which bounds; clocks go on over a rollback, so waits and timers end that much later.
//   disturb N       changes the state, differently for each N; DISTURBED
//   quit            ends
// In place of READY it may print `SKIP reason`. A set-up that cannot be made prints `ERROR reason` and exits with 3.
//
// Nothing here keeps an expected value in a place that a check could mistake for the thing it checks: contents come
// from `byte_at(seed, index)`, kernel state from the kernel.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096ul
#define UNUSED __attribute__((unused))
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ANSWER_WITHIN_MS 5000

static void setup(void);
static void check(void);
static void disturb(int round);

static const char *lower_dir;
static void (*at_end)(void); // puts away what lies outside the directory of the workload
static long undone_lo_ms, undone_hi_ms;
static char failure[512];

static void say(const char *format, ...) {
    char line[600];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    for (int i = 0; i < length; i++)
        if (line[i] < 32 || line[i] > 126) line[i] = '?'; // one line, whatever a path holds
    line[length++] = '\n';
    if (write(1, line, length) != length) _exit(4);
}

#define DIE(...) do { say("ERROR " __VA_ARGS__); _exit(3); } while (0)
#define SKIP(...) do { say("SKIP " __VA_ARGS__); _exit(0); } while (0)
// For a call whose failure means that the program, not the box, is wrong.
#define MUST(call) ({ \
    __typeof__(call) result_ = (call); \
    if ((long)result_ == -1) DIE("%s:%d: %s: %s", __FILE_NAME__, __LINE__, #call, strerror(errno)); \
    result_; })

// For a disturbance that finds its work done already by the one before: disturb runs several times in a row.
#define TRY(call) do { if ((long)(call) == -1) errno = 0; } while (0)

// The first difference wins. The WANT macros leave the function they stand in.
static void fail(const char *format, ...) {
    if (failure[0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(failure, sizeof failure, format, args);
    va_end(args);
}
#define FAILED(...) do { fail(__VA_ARGS__); return; } while (0)
#define WANT_EQ(what, want, got) do { \
    long long want_ = (long long)(want), got_ = (long long)(got); \
    if (want_ != got_) FAILED("%s: wanted %lld, got %lld", what, want_, got_); } while (0)
#define WANT_HEX(what, want, got) do { \
    unsigned long long want_ = (unsigned long long)(want), got_ = (unsigned long long)(got); \
    if (want_ != got_) FAILED("%s: wanted %#llx, got %#llx", what, want_, got_); } while (0)
#define WANT(what, condition) do { if (!(condition)) FAILED("%s: wanted %s", what, #condition); } while (0)
#define WANT_STR(what, want, got) do { \
    const char *want_ = (want), *got_ = (got); \
    if (strcmp(want_, got_)) FAILED("%s: wanted %s, got %s", what, want_, got_); } while (0)
#define WANT_BETWEEN(what, lo, hi, got) do { \
    long long lo_ = (long long)(lo), hi_ = (long long)(hi), got_ = (long long)(got); \
    if (got_ < lo_ || got_ > hi_) FAILED("%s: wanted %lld to %lld, got %lld", what, lo_, hi_, got_); } while (0)
#define WANT_CONTENT(what, seed, offset, bytes, length) do { \
    long at_ = differs_at(seed, offset, bytes, length); \
    if (at_ >= 0) FAILED("%s: byte %ld: wanted %d, got %d", what, at_, byte_at(seed, (offset) + at_), \
                         ((const unsigned char *)(bytes))[at_]); } while (0)
// A function of wants, in a function of wants.
#define WANTS(call) do { call; if (failure[0]) return; } while (0)
#define WANT_FILE(path, seed, length) WANTS(want_file(path, seed, length))
// A call that must succeed for the state to be right.
#define WANT_CALL(call) ({ \
    __typeof__(call) result_ = (call); \
    if ((long)result_ == -1) FAILED("%s: %s", #call, strerror(errno)); \
    result_; })

// ---- contents

UNUSED static unsigned char byte_at(unsigned seed, size_t index) {
    uint64_t x = (index + 1) * 0x9E3779B97F4A7C15ull ^ ((uint64_t)seed << 32 | seed);
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ull;
    return (x >> 56) | 1; // never zero, so that a hole is never right by chance
}
UNUSED static void fill(void *bytes, unsigned seed, size_t offset, size_t length) {
    for (size_t i = 0; i < length; i++) ((volatile unsigned char *)bytes)[i] = byte_at(seed, offset + i);
}
UNUSED static long differs_at(unsigned seed, size_t offset, const void *bytes, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (((const volatile unsigned char *)bytes)[i] != byte_at(seed, offset + i)) return (long)i;
    return -1;
}
UNUSED static void write_file(const char *path, unsigned seed, size_t length) {
    unsigned char *bytes = malloc(length + 1);
    fill(bytes, seed, 0, length);
    int fd = MUST(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (write(fd, bytes, length) != (ssize_t)length) DIE("short write to %s", path);
    close(fd);
    free(bytes);
}
UNUSED static void want_file(const char *path, unsigned seed, size_t length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) FAILED("%s: wanted a file of %zu bytes, got: %s", path, length, strerror(errno));
    struct stat status;
    unsigned char *bytes = malloc(length + 1);
    ssize_t got = read(fd, bytes, length + 1);
    fstat(fd, &status);
    close(fd);
    long at = got == (ssize_t)length ? differs_at(seed, 0, bytes, length) : -1;
    int byte = at >= 0 ? bytes[at] : 0;
    free(bytes);
    WANT_EQ(path, length, got);
    WANT_EQ(path, length, status.st_size);
    if (at >= 0) FAILED("%s: byte %ld: wanted %d, got %d", path, at, byte_at(seed, at), byte);
}

// ---- time

UNUSED static long long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}
UNUSED static long now_ms(void) { return (long)(now_ns() / 1000000); }
UNUSED static void pause_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}
UNUSED static struct timespec deadline_in_ms(long ms) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += ms / 1000;
    time.tv_nsec += ms % 1000 * 1000000;
    if (time.tv_nsec >= 1000000000) time.tv_sec++, time.tv_nsec -= 1000000000;
    return time;
}

// ---- what the kernel says of this process

// A field of /proc/self/task/TID/status; hexadecimal.
UNUSED static unsigned long long status_hex(pid_t tid, const char *field) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    FILE *file = fopen(path, "re");
    unsigned long long value = ~0ull;
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, field, strlen(field)) && line[strlen(field)] == ':')
            value = strtoull(line + strlen(field) + 1, NULL, 16);
    if (file) fclose(file);
    return value;
}
// The mapping that holds `address`: false when there is none.
struct mapping { unsigned long start, end; char permissions[8]; };
UNUSED static bool mapping_of(const void *address, struct mapping *mapping) {
    char line[512];
    FILE *file = fopen("/proc/self/maps", "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "%lx-%lx %4s", &mapping->start, &mapping->end, mapping->permissions) == 3 &&
                (unsigned long)address >= mapping->start && (unsigned long)address < mapping->end;
    if (file) fclose(file);
    return found;
}
UNUSED static int count_entries(const char *path) {
    DIR *directory = opendir(path);
    int count = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    if (directory) closedir(directory);
    return count;
}
UNUSED static int thread_count(void) { return count_entries("/proc/self/task"); }
// A joined thread is told of before it has left /proc: waits until there are no more than `count`.
UNUSED static int thread_count_down_to(int count) {
    int now = thread_count();
    for (long until = now_ms() + ANSWER_WITHIN_MS; now > count && now_ms() < until; now = thread_count()) pause_ms(1);
    return now;
}
// Waits until a thread of ours is inside system call `number` (and stays: it sleeps there).
UNUSED static void await_syscall(pid_t tid, long number) {
    char path[64], text[128];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    for (long until = now_ms() + ANSWER_WITHIN_MS; now_ms() < until; pause_ms(1)) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0) close(fd);
        if (length <= 0) continue;
        text[length] = 0;
        if (text[0] >= '0' && text[0] <= '9' && strtol(text, NULL, 10) == number) return;
    }
    DIE("thread %d did not get into system call %ld", tid, number);
}

// ---- a thread that answers questions

struct worker {
    pthread_t thread;
    pid_t tid;
    sem_t go, done;
    long (*answer)(struct worker *, long question);
    long question, reply;
    bool ended;
};
#define END_WORKER (-99l)
UNUSED static void *worker_main(void *argument) {
    struct worker *worker = argument;
    worker->tid = gettid();
    sem_post(&worker->done);
    for (;;) {
        while (sem_wait(&worker->go)) {}
        long question = worker->question;
        worker->reply = question == END_WORKER ? 0 : worker->answer(worker, question);
        sem_post(&worker->done);
        if (question == END_WORKER) return NULL;
    }
}
// False when no answer comes: the thread is gone or stuck.
UNUSED static bool ask(struct worker *worker, long question, long *reply) {
    if (worker->ended) return false;
    worker->question = question;
    sem_post(&worker->go);
    struct timespec until = deadline_in_ms(ANSWER_WITHIN_MS);
    while (sem_timedwait(&worker->done, &until))
        if (errno != EINTR) return false;
    *reply = worker->reply;
    return true;
}
UNUSED static void worker_start(struct worker *worker, long (*answer)(struct worker *, long)) {
    sem_init(&worker->go, 0, 0);
    sem_init(&worker->done, 0, 0);
    worker->answer = answer;
    worker->ended = false;
    if (pthread_create(&worker->thread, NULL, worker_main, worker)) DIE("pthread_create");
    while (sem_wait(&worker->done)) {}
}
UNUSED static void worker_end(struct worker *worker) {
    long reply;
    if (worker->ended) return;
    if (!ask(worker, END_WORKER, &reply) || pthread_join(worker->thread, NULL)) DIE("a thread did not end");
    worker->ended = true;
}

// ---- a child process that answers questions

struct child {
    pid_t pid;
    int to, from;
};
static int child_fds[64], child_fd_count;
UNUSED static void child_start(struct child *child, long (*answer)(long question)) {
    int down[2], up[2];
    MUST(pipe2(down, O_CLOEXEC));
    MUST(pipe2(up, O_CLOEXEC));
    child->pid = MUST(fork());
    if (child->pid == 0) {
        close(down[1]);
        close(up[0]);
        // Else this child would keep its siblings alive: they end at the end of their pipes.
        for (int i = 0; i < child_fd_count; i++) close(child_fds[i]);
        child_fd_count = 0;
        for (long question, reply;;) {
            ssize_t got = read(down[0], &question, sizeof question);
            if (got < 0 && errno == EINTR) continue;
            if (got != sizeof question) _exit(0);
            reply = answer(question);
            if (write(up[1], &reply, sizeof reply) != sizeof reply) _exit(0);
        }
    }
    close(down[0]);
    close(up[1]);
    child->to = child_fds[child_fd_count++] = down[1];
    child->from = child_fds[child_fd_count++] = up[0];
}
UNUSED static bool ask_child(struct child *child, long question, long *reply) {
    struct pollfd ready = {child->from, POLLIN, 0};
    if (write(child->to, &question, sizeof question) != sizeof question) return false;
    if (poll(&ready, 1, ANSWER_WITHIN_MS) != 1) return false;
    return read(child->from, reply, sizeof *reply) == sizeof *reply;
}

// ---- main

// One byte at a time: nothing may wait in a buffer of ours when the state is taken.
static bool read_line(char *line, size_t capacity) {
    for (size_t length = 0;;) {
        char byte;
        ssize_t got = read(0, &byte, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) DIE("read of standard input: %s", strerror(errno));
        if (got == 0) return false;
        if (byte == '\n') return line[length] = 0, true;
        if (length + 1 < capacity) line[length++] = byte;
    }
}

int main(int argument_count, char **arguments) {
    if (argument_count < 3) DIE("usage: %s DIR LOWER_DIR", arguments[0]);
    signal(SIGPIPE, SIG_IGN);
    umask(022);
    if (mkdir(arguments[1], 0755) && errno != EEXIST) DIE("mkdir %s: %s", arguments[1], strerror(errno));
    MUST(chdir(arguments[1]));
    lower_dir = arguments[2];
    setup();
    say("READY");
    for (char line[128]; read_line(line, sizeof line);) {
        int round = 1;
        undone_lo_ms = undone_hi_ms = 0;
        if (!strncmp(line, "check", 5)) {
            sscanf(line, "check %ld %ld", &undone_lo_ms, &undone_hi_ms);
            failure[0] = 0;
            check();
            if (failure[0]) say("FAIL %s", failure);
            else say("OK");
        } else if (sscanf(line, "disturb %d", &round) == 1 || !strcmp(line, "disturb")) {
            disturb(round);
            say("DISTURBED");
        } else if (!strcmp(line, "quit")) {
            break;
        } else {
            say("ERROR unknown word: %s", line);
        }
    }
    if (at_end) at_end();
    _exit(0);
}
