//! Files of the lower layer written, truncated, unlinked, given another mode since: the lower ones show again.
// fault: skip:files.content
#include "tree.h"

static uint64_t wanted;
static long wanted_entries;
static char path[4200];
static int reader;

static const char *in_lower(const char *name) { return snprintf(path, sizeof path, "%s/%s", lower_dir, name), path; }
static void setup(void) {
    wanted = tree_digest(lower_dir);
    wanted_entries = tree_entries;
    reader = MUST(open(in_lower("fs.h"), O_RDONLY)); // opened before the copy up
}
static void check(void) {
    char by_fd[2000], by_name[2000];
    WANTS(want_tree(lower_dir, wanted, wanted_entries));
    int fd = WANT_CALL(open(in_lower("fs.h"), O_RDONLY));
    ssize_t got = read(fd, by_name, sizeof by_name);
    close(fd);
    WANT_EQ("bytes by the old descriptor", got, pread(reader, by_fd, sizeof by_fd, 0));
    WANT("old descriptor and name give the same", !memcmp(by_fd, by_name, got));
}
static void disturb(int round) {
    int fd = MUST(open(in_lower("fs.h"), O_WRONLY | (round % 2 ? O_APPEND : O_TRUNC)));
    if (write(fd, "// changed\n", 11) != 11) DIE("write");
    close(fd);
    TRY(chmod(in_lower("stat.h"), 0600));
    if (round % 2) unlink(in_lower("types.h"));
    write_file(in_lower("new.h"), round, 500);
}
