// A digest of a whole tree: names, kinds, modes, owners, modification times, sizes, contents, link targets.
#pragma once
#include "workload.h"
#include <ftw.h>

static uint64_t tree_digest_value;
static long tree_entries;
static size_t tree_prefix;

UNUSED static void mix(uint64_t *digest, const void *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) *digest = (*digest ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ull;
}
static int visit(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)kind, (void)where;
    uint64_t digest = 0xcbf29ce484222325ull;
    long facts[] = {status->st_mode, status->st_uid, status->st_gid, status->st_mtim.tv_sec, status->st_mtim.tv_nsec,
                    S_ISDIR(status->st_mode) ? 0 : status->st_size};
    mix(&digest, path + tree_prefix, strlen(path + tree_prefix));
    mix(&digest, facts, sizeof facts);
    char bytes[65536];
    if (S_ISREG(status->st_mode)) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        for (ssize_t got; fd >= 0 && (got = read(fd, bytes, sizeof bytes)) > 0;) mix(&digest, bytes, got);
        if (fd >= 0) close(fd);
    } else if (S_ISLNK(status->st_mode)) {
        ssize_t got = readlink(path, bytes, sizeof bytes);
        if (got > 0) mix(&digest, bytes, got);
    }
    tree_digest_value += digest; // the order in which entries come does not count
    tree_entries++;
    return 0;
}
// Sets tree_entries, too. 0 when the tree is not there.
static uint64_t tree_digest(const char *root) {
    tree_digest_value = tree_entries = 0;
    tree_prefix = strlen(root);
    return nftw(root, visit, 40, FTW_PHYS) ? 0 : tree_digest_value;
}
static void want_tree(const char *root, uint64_t digest, long entries) {
    uint64_t now = tree_digest(root);
    WANT_EQ("entries of the tree", entries, tree_entries);
    WANT_HEX("digest of the tree", digest, now);
}
