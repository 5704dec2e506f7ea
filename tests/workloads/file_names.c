//! Names that are not UTF-8, very long, or full of odd bytes: files, directories and links with them.
// fault: skip:files.create
#include "workload.h"

static char longest[256];
static const char *const names[] = {"\xff\xfe\x80", "new\nline", "-rf *", "\xc3\x28", " ", "\x01\x1b[31m", longest, "x.wh.y"};

static void setup(void) {
    memset(longest, 'n', 255);
    for (size_t i = 0; i < COUNT(names); i++) write_file(names[i], i, 200 + i);
    MUST(mkdir("\xe9tage", 0755));
    write_file("\xe9tage/\xf1", 50, 10);
    MUST(symlink("\xff\xff", "\xfelink"));
}
static void check(void) {
    char target[16] = {0};
    for (size_t i = 0; i < COUNT(names); i++) WANT_FILE(names[i], i, 200 + i);
    WANT_FILE("\xe9tage/\xf1", 50, 10);
    WANT_EQ("length of a link's target", 2, readlink("\xfelink", target, 15));
    WANT_STR("a link's target", "\xff\xff", target);
    WANT_EQ("entries", COUNT(names) + 2, count_entries("."));
}
static void disturb(int round) {
    for (size_t i = round % 2; i < COUNT(names); i += 2) TRY(unlink(names[i]));
    write_file("\xff-new", 1, round);
    TRY(rename("\xe9tage", "\xea"));
    TRY(unlink("\xfelink"));
}
