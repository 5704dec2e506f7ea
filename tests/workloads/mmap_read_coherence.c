//! A file changed by write(2) since, while it is mapped shared and private: mapping, read and a fresh open agree.
// fault: skip:files.content
#include "workload.h"

#define LENGTH (20 * PAGE)
static unsigned char *shared, *private;
static int fd;

static void setup(void) {
    write_file("coherent", 3, LENGTH);
    fd = MUST(open("coherent", O_RDWR));
    shared = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, fd, 0);
    private = mmap(NULL, LENGTH, PROT_READ, MAP_PRIVATE, fd, 0);
}
static void check(void) {
    struct stat here, named;
    unsigned char bytes[PAGE];
    WANT_FILE("coherent", 3, LENGTH);
    WANT_CONTENT("the shared mapping", 3, 0, shared, LENGTH);
    WANT_CONTENT("the private mapping", 3, 0, private, LENGTH);
    WANT_EQ("bytes by descriptor", (long)PAGE, pread(fd, bytes, PAGE, 7 * PAGE));
    WANT_CONTENT("by descriptor", 3, 7 * PAGE, bytes, PAGE);
    WANT_CALL(fstat(fd, &here));
    WANT_CALL(stat("coherent", &named));
    WANT_EQ("inode by descriptor and by name", here.st_ino, named.st_ino);
    // Written through the name now, it must be seen through the old mapping.
    int other = WANT_CALL(open("coherent", O_WRONLY));
    unsigned char changed = byte_at(3, 50) ^ 8, old = byte_at(3, 50);
    ssize_t put = pwrite(other, &changed, 1, 50);
    unsigned char seen = ((volatile unsigned char *)shared)[50];
    put += pwrite(other, &old, 1, 50);
    close(other);
    WANT_EQ("bytes written", 2, put);
    WANT_EQ("a byte written by name, seen in the mapping", changed, seen);
}
static void disturb(int round) {
    unsigned char bytes[3000];
    fill(bytes, 40 + round, 0, sizeof bytes);
    for (int i = 0; i < 5; i++)
        if (pwrite(fd, bytes, sizeof bytes, (i * 4 + round) * PAGE) != sizeof bytes) DIE("pwrite");
    if (round % 2 == 0) MUST(ftruncate(fd, 21 * PAGE));
}
