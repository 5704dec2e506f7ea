// Looking into pipes and sockets without taking anything out.
#pragma once
#include "workload.h"

// Bytes that wait in a pipe, copied with tee(2).
UNUSED static ssize_t peek_pipe(int fd, void *bytes, size_t capacity) {
    int copy[2];
    if (pipe2(copy, O_NONBLOCK)) return -1;
    fcntl(copy[1], F_SETPIPE_SZ, 1 << 20);
    ssize_t got = tee(fd, copy[1], capacity, SPLICE_F_NONBLOCK), total = 0;
    while (got > 0 && total < got) {
        ssize_t part = read(copy[0], (char *)bytes + total, capacity - total);
        if (part <= 0) break;
        total += part;
    }
    close(copy[0]);
    close(copy[1]);
    return got < 0 && errno == EAGAIN ? 0 : total;
}
UNUSED static void put(int fd, unsigned seed, size_t offset, size_t length) {
    unsigned char *bytes = malloc(length);
    fill(bytes, seed, offset, length);
    if (write(fd, bytes, length) != (ssize_t)length) DIE("write of %zu bytes: %s", length, strerror(errno));
    free(bytes);
}
UNUSED static void take(int fd, size_t length) {
    char *bytes = malloc(length);
    while (length > 0) {
        ssize_t got = read(fd, bytes, length);
        if (got <= 0) DIE("read: %s", strerror(errno));
        length -= got;
    }
    free(bytes);
}
UNUSED static void want_waiting(const char *what, int fd, unsigned seed, size_t offset, size_t length) {
    static unsigned char bytes[1 << 20];
    int ready = -1;
    WANT_CALL(ioctl(fd, FIONREAD, &ready));
    WANT_EQ(what, length, ready);
    ssize_t got = peek_pipe(fd, bytes, sizeof bytes);
    WANT_EQ(what, length, got);
    WANT_CONTENT(what, seed, offset, bytes, length);
}
