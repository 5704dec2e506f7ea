//! Hard links: which names are one file, and how many; linked, unlinked and replaced since.
// fault: skip:files.hardlink
#include "workload.h"

static void setup(void) {
    write_file("first", 1, 3000);
    MUST(link("first", "second"));
    MUST(mkdir("directory", 0755));
    MUST(link("first", "directory/third"));
    write_file("alone", 2, 3000);
}
static void check(void) {
    struct stat first, other;
    WANT_CALL(stat("first", &first));
    WANT_EQ("names of the linked file", 3, first.st_nlink);
    WANT_CALL(stat("second", &other));
    WANT_EQ("inode of the second name", first.st_ino, other.st_ino);
    WANT_CALL(stat("directory/third", &other));
    WANT_EQ("inode of the third name", first.st_ino, other.st_ino);
    WANT_CALL(stat("alone", &other));
    WANT_EQ("names of the other file", 1, other.st_nlink);
    WANT_FILE("directory/third", 1, 3000);
    WANT_FILE("alone", 2, 3000);
    // Written through one name, seen through another.
    int fd = WANT_CALL(open("second", O_WRONLY));
    unsigned char changed = byte_at(1, 5) ^ 4, seen = 0, old = byte_at(1, 5);
    ssize_t done = pwrite(fd, &changed, 1, 5);
    int reader = WANT_CALL(open("directory/third", O_RDONLY));
    done += pread(reader, &seen, 1, 5);
    done += pwrite(fd, &old, 1, 5);
    close(reader);
    close(fd);
    WANT_EQ("bytes moved", 3, done);
    WANT_EQ("a byte seen through the third name", changed, seen);
}
static void disturb(int round) {
    TRY(unlink("second"));
    if (round % 2) write_file("second", 1, 3000); // the same bytes, another file
    else TRY(link("alone", "second"));
    TRY(unlink("directory/third"));
    TRY(link("alone", "directory/fourth"));
}
