/* The floor under a checkpoint and a rollback: the least work that can do it, as a bare program that prints its parts.
 *
 * A tracer and a tree of targets it made itself. The targets register their own memory for write tracking, hold the
 * copy loop and share a shadow area with the tracer, so nothing is injected, looked up or allocated when the clock
 * runs: seize, interrupt, wait; registers; one scan; copies inside the tracee while the tracer does the files; detach.
 * It keeps one checkpoint, knows no descriptors, signals, timers or new mappings, and refuses nothing.
 *
 * usage: floor HEAP_MB DIRTY_MB FILES FILE_KB PROCESSES THREADS DIR IN OUT [vm]
 * stdin: "checkpoint" | "rollback" | "quit"; one line of JSON back. IN and OUT (FIFOs) lead to the first target:
 * "ping", "dirty SEED", "hash". With "vm" the pages go through process_vm_readv and process_vm_writev instead. */
#include "kernel.h"
#include <pthread.h>

#define PROCESS_MAX 64
#define THREAD_MAX 64
#define REGION_MAX 4096
#define FILE_MAX 4096
#define XSAVE_MAX 16384

struct copy { uint64_t target, source, len; };
struct region { uint64_t start, end, shadow; };

/* Shared between the tracer and one target, at the same address in both. */
struct shared {
    uint64_t copy_count, copy_capacity, region_count, ready;
    struct region regions[REGION_MAX];
    struct copy copies[];
};

struct target {
    pid_t pid;
    struct shared *shared;
    uint64_t shadow, shadow_len;
    int pagemap;
    pid_t tids[THREAD_MAX];
    struct user_regs_struct regs[THREAD_MAX], regs_now[THREAD_MAX];
    char xsave[THREAD_MAX][XSAVE_MAX];
    size_t xsave_len[THREAD_MAX];
    int thread_count;
    struct iovec *local, *remote;
};

static int heap_mb, dirty_mb, file_count, file_kb, process_count, thread_count, through_vm;
static const char *dir, *in_path, *out_path;
static struct target targets[PROCESS_MAX];
static char *file_bytes;
static int file_fds[FILE_MAX];
static struct scan_region *found;
static uint64_t found_capacity;

/* The copy loop that runs inside a stopped target: r12 = first struct copy, r13 = count. Uses no stack. */
extern char copy_loop[];
__asm__(".globl copy_loop\ncopy_loop:\n"
        "1: test %r13,%r13\n jz 2f\n"
        "mov 0(%r12),%rdi\n mov 8(%r12),%rsi\n mov 16(%r12),%rcx\n cld\n rep movsb\n"
        "add $24,%r12\n dec %r13\n jmp 1b\n"
        "2: int3\n");

/* ---- the target ---- */

static pthread_barrier_t start_line, finish_line;
static uint64_t round_seed, heap_len, dirty_pages;
static char *heap;

static uint64_t next_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15ull;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* New bytes in every `thread_count`-th of the round's scattered pages. */
static void dirty_share(int index) {
    uint64_t state = round_seed;
    for (uint64_t i = 0; i < dirty_pages; i++) {
        uint64_t page = next_random(&state) % (heap_len / PAGE), seed = next_random(&state);
        if (i % (uint64_t)thread_count != (uint64_t)index) continue;
        uint64_t *words = (uint64_t *)(heap + page * PAGE);
        for (uint64_t w = 0; w < PAGE / 8; w++) words[w] = seed + w * 0x9e37;
    }
}

static void *thread_main(void *index) {
    for (;;) {
        pthread_barrier_wait(&start_line);
        dirty_share((int)(intptr_t)index);
        pthread_barrier_wait(&finish_line);
    }
    return NULL;
}

static uint64_t hash_words(uint64_t hash, const uint64_t *words, uint64_t count) {
    uint64_t lanes[4] = {hash, hash + 1, hash + 2, hash + 3};
    for (uint64_t i = 0; i + 4 <= count; i += 4)
        for (int lane = 0; lane < 4; lane++) lanes[lane] = (lanes[lane] ^ words[i + lane]) * 0x100000001b3ull;
    return lanes[0] ^ lanes[1] * 3 ^ lanes[2] * 5 ^ lanes[3] * 7;
}

static void rewrite_files(uint64_t seed) {
    static uint64_t words[1 << 16];
    for (int i = 0; i < file_count; i++) {
        for (int w = 0; w < file_kb * 128; w++) words[w] = next_random(&seed);
        if (pwrite(file_fds[i], words, file_kb * 1024ull, 0) != file_kb * 1024ll) die("pwrite");
    }
}

static uint64_t hash_all(void) {
    static uint64_t words[1 << 16];
    uint64_t hash = hash_words(1, (uint64_t *)heap, heap_len / 8);
    for (int i = 0; i < file_count; i++) {
        if (pread(file_fds[i], words, file_kb * 1024ull, 0) != file_kb * 1024ll) die("pread");
        hash = hash_words(hash, words, file_kb * 128ull);
    }
    return hash;
}

/* Registers every private writable mapping and protects it, so that the first scan already tells what changed. */
static void track_self(struct shared *shared, uint64_t shadow, uint64_t shadow_len) {
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED};
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api)) die("userfaultfd");
    uint64_t used = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (fgets(line, sizeof line, maps)) {
        uint64_t start, end;
        char prot[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, prot) != 3 || prot[1] != 'w' || prot[3] != 'p') continue;
        if (strstr(line, "[v")) continue;
        struct uffdio_register reg = {.range = {start, end - start}, .mode = UFFDIO_REGISTER_MODE_WP};
        if (ioctl(uffd, UFFDIO_REGISTER, &reg)) die("UFFDIO_REGISTER");
        if (shared->region_count == REGION_MAX || used + (end - start) > shadow_len) {
            fprintf(stderr, "more memory than the shadow holds\n");
            exit(1);
        }
        shared->regions[shared->region_count++] = (struct region){start, end, shadow + used};
        used += end - start;
    }
    fclose(maps);
}

/* `upstream` and `downstream` are what requests come from and answers go to; -1 means the FIFOs. */
static void target_main(int index, int from, int to, int *child_to, int *child_from) {
    struct target *self = &targets[index];
    heap_len = (uint64_t)heap_mb * 1048576 / process_count;
    dirty_pages = (uint64_t)dirty_mb * 256 / process_count;
    heap = mmap(NULL, heap_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (heap == MAP_FAILED) die("mmap heap");
    uint64_t seed = index + 1;
    for (uint64_t i = 0; i < heap_len; i += 8) *(uint64_t *)(heap + i) = next_random(&seed);
    if (madvise((void *)self->shadow, self->shadow_len, MADV_POPULATE_WRITE)) die("MADV_POPULATE_WRITE");
    pthread_barrier_init(&start_line, NULL, thread_count);
    pthread_barrier_init(&finish_line, NULL, thread_count);
    for (int i = 1; i < thread_count; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, thread_main, (void *)(intptr_t)i);
    }
    track_self(self->shared, self->shadow, self->shadow_len);
    __atomic_store_n(&self->shared->ready, 1, __ATOMIC_SEQ_CST);
    if (index == 0) {
        from = open(in_path, O_RDONLY);
        to = open(out_path, O_WRONLY);
        if (from < 0 || to < 0) die("open FIFO");
    }
    char line[128];
    for (;;) {
        size_t len = 0;
        while (len == 0 || line[len - 1] != '\n') {
            ssize_t got = read(from, line + len, sizeof line - 1 - len);
            if (got <= 0) _exit(0);
            len += got;
        }
        line[len] = 0;
        char answer[64] = "pong\n";
        int passed_on = index == 0 && strncmp(line, "ping", 4) != 0;
        for (int i = 1; passed_on && i < process_count; i++)
            if (write(child_to[i], line, len) < 0) die("write to a child");
        if (!strncmp(line, "dirty ", 6)) {
            round_seed = strtoull(line + 6, NULL, 10) * 1000 + index;
            if (thread_count > 1) pthread_barrier_wait(&start_line);
            dirty_share(0);
            if (thread_count > 1) pthread_barrier_wait(&finish_line);
            if (index == 0) rewrite_files(round_seed);
            strcpy(answer, "ok\n");
        }
        uint64_t hash = !strncmp(line, "hash", 4) ? hash_all() : 0;
        for (int i = 1; passed_on && i < process_count; i++) {
            char theirs[64] = {0};
            if (read(child_from[i], theirs, sizeof theirs - 1) <= 0) die("read from a child");
            if (hash) hash = hash * 31 + strtoull(theirs, NULL, 16);
        }
        if (hash) snprintf(answer, sizeof answer, "%016lx\n", hash);
        if (write(to, answer, strlen(answer)) < 0) die("answer");
    }
}

/* ---- the tracer ---- */

static double part_start;
static char parts[1024];

static void part(const char *name) {
    double now = now_us();
    size_t len = strlen(parts);
    snprintf(parts + len, sizeof parts - len, "%s\"%s\":%.1f", len ? "," : "", name, now - part_start);
    part_start = now;
}

static void list_threads(struct target *t) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", t->pid);
    t->thread_count = 0;
    t->tids[t->thread_count++] = t->pid;
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) die(path);
    char buf[8192];
    long got;
    while ((got = syscall(SYS_getdents64, fd, buf, sizeof buf)) > 0)
        for (long at = 0; at < got; at += *(unsigned short *)(buf + at + 16)) {
            pid_t tid = atoi(buf + at + 19);
            if (tid && tid != t->pid && t->thread_count < THREAD_MAX) t->tids[t->thread_count++] = tid;
        }
    close(fd);
}

static void attach_all(void) {
    for (int p = 0; p < process_count; p++) list_threads(&targets[p]);
    for (int p = 0; p < process_count; p++)
        for (int i = 0; i < targets[p].thread_count; i++) {
            if (ptrace(PTRACE_SEIZE, targets[p].tids[i], 0, 0)) die("PTRACE_SEIZE");
            if (ptrace(PTRACE_INTERRUPT, targets[p].tids[i], 0, 0)) die("PTRACE_INTERRUPT");
        }
    for (int p = 0; p < process_count; p++)
        for (int i = 0; i < targets[p].thread_count; i++) wait_stop(targets[p].tids[i]);
}

static void read_registers(int keep) {
    for (int p = 0; p < process_count; p++)
        for (int i = 0; i < targets[p].thread_count; i++) {
            struct target *t = &targets[p];
            if (ptrace(PTRACE_GETREGS, t->tids[i], 0, &t->regs_now[i])) die("PTRACE_GETREGS");
            if (!keep) continue;
            struct iovec area = {t->xsave[i], XSAVE_MAX};
            if (ptrace(PTRACE_GETREGSET, t->tids[i], (void *)NT_X86_XSTATE, &area)) die("NT_X86_XSTATE");
            t->xsave_len[i] = area.iov_len;
            t->regs[i] = t->regs_now[i];
            restart_call(&t->regs[i]);
        }
}

/* Which tracked pages were written; protects them again when `protect`. Fills the copy table: out when `out`. */
static uint64_t scan(struct target *t, int protect, int out) {
    uint64_t at = 0, pages = 0, count = 0;
    while (at < ADDRESS_MAX) {
        struct scan_args args = {
            .size = sizeof args, .flags = protect ? SCAN_WP_MATCHING : 0, .start = at, .end = ADDRESS_MAX,
            .vec = (uint64_t)found, .vec_len = found_capacity, .category_mask = IS_WRITTEN | IS_WPALLOWED,
            .category_anyof_mask = IS_PRESENT | IS_SWAPPED, .return_mask = IS_WRITTEN,
        };
        long n = ioctl(t->pagemap, SCAN_IOCTL, &args);
        if (n < 0) die("PAGEMAP_SCAN");
        struct region *region = t->shared->regions;
        for (long i = 0; i < n; i++) {
            while (region->end <= found[i].start) region++;
            uint64_t start = found[i].start, len = found[i].end - start;
            uint64_t shadow = region->shadow + (start - region->start);
            if (count == t->shared->copy_capacity) { fprintf(stderr, "copy table is full\n"); exit(1); }
            t->shared->copies[count++] =
                out ? (struct copy){shadow, start, len} : (struct copy){start, shadow, len};
            pages += len / PAGE;
        }
        at = args.walk_end;
        if (n < (long)found_capacity) break;
    }
    t->shared->copy_count = count;
    return pages;
}

static void start_copies(struct target *t, int out) {
    if (through_vm) {
        uint64_t count = t->shared->copy_count;
        for (uint64_t i = 0; i < count; i++) {
            struct copy *c = &t->shared->copies[i];
            t->local[i] = (struct iovec){(void *)(out ? c->target : c->source), c->len};
            t->remote[i] = (struct iovec){(void *)(out ? c->source : c->target), c->len};
        }
        for (uint64_t i = 0; i < count; i += 1024) {
            uint64_t n = count - i < 1024 ? count - i : 1024;
            ssize_t moved = out ? process_vm_readv(t->pid, t->local + i, n, t->remote + i, n, 0)
                                : process_vm_writev(t->pid, t->local + i, n, t->remote + i, n, 0);
            if (moved < 0) die("process_vm");
        }
        return;
    }
    struct user_regs_struct regs = t->regs_now[0];
    regs.rip = (uint64_t)copy_loop;
    regs.r12 = (uint64_t)t->shared->copies;
    regs.r13 = t->shared->copy_count;
    regs.orig_rax = -1;
    if (ptrace(PTRACE_SETREGS, t->pid, 0, &regs)) die("PTRACE_SETREGS");
    if (ptrace(PTRACE_CONT, t->pid, 0, 0)) die("PTRACE_CONT");
}

static void detach_all(void) {
    for (int p = 0; p < process_count; p++)
        for (int i = 0; i < targets[p].thread_count; i++)
            if (ptrace(PTRACE_DETACH, targets[p].tids[i], 0, 0)) die("PTRACE_DETACH");
}

static void files(int out) {
    uint64_t len = file_kb * 1024ull;
    for (int i = 0; i < file_count; i++) {
        char *bytes = file_bytes + i * len;
        ssize_t moved = out ? pread(file_fds[i], bytes, len, 0) : pwrite(file_fds[i], bytes, len, 0);
        if (moved != (ssize_t)len) die("file");
    }
}

static void wait_copies(void) {
    if (through_vm) return;
    for (int p = 0; p < process_count; p++) wait_stop(targets[p].pid);
}

static void report(const char *what, double stop, uint64_t pages) {
    printf("{\"op\":\"%s\",\"stop_us\":%.1f,\"pages\":%lu,\"parts_us\":{%s}}\n", what, stop, pages, parts);
    fflush(stdout);
}

static void checkpoint(void) {
    double start = part_start = now_us();
    uint64_t pages = 0;
    attach_all();
    part("attach");
    read_registers(1);
    part("registers");
    for (int p = 0; p < process_count; p++) {
        pages += scan(&targets[p], 1, 1);
        start_copies(&targets[p], 1);
    }
    part("scan");
    files(1);
    part("files");
    wait_copies();
    part("copies");
    for (int p = 0; p < process_count && !through_vm; p++)
        if (ptrace(PTRACE_SETREGS, targets[p].pid, 0, &targets[p].regs[0])) die("PTRACE_SETREGS");
    detach_all();
    part("detach");
    report("checkpoint", now_us() - start, pages);
}

static void rollback(void) {
    double start = part_start = now_us();
    uint64_t pages = 0;
    attach_all();
    part("attach");
    read_registers(0);
    part("registers");
    for (int p = 0; p < process_count; p++) {
        pages += scan(&targets[p], 0, 0);
        start_copies(&targets[p], 0);
    }
    part("scan");
    files(0);
    part("files");
    wait_copies();
    part("copies");
    for (int p = 0; p < process_count; p++) {
        scan(&targets[p], 1, 0);
        for (int i = 0; i < targets[p].thread_count; i++) {
            struct target *t = &targets[p];
            struct iovec area = {t->xsave[i], t->xsave_len[i]};
            if (ptrace(PTRACE_SETREGSET, t->tids[i], (void *)NT_X86_XSTATE, &area)) die("set NT_X86_XSTATE");
            if (ptrace(PTRACE_SETREGS, t->tids[i], 0, &t->regs[i])) die("PTRACE_SETREGS");
        }
    }
    part("protect");
    detach_all();
    part("detach");
    report("rollback", now_us() - start, pages);
}

/* The area a target and the tracer share: table of copies, then the shadow of every tracked page, faulted in. */
static void make_shared(struct target *t) {
    uint64_t heap_bytes = (uint64_t)heap_mb * 1048576 / process_count;
    uint64_t capacity = heap_bytes / PAGE + 65536;
    uint64_t table = (sizeof(struct shared) + capacity * sizeof(struct copy) + PAGE - 1) & ~(PAGE - 1);
    t->shadow_len = heap_bytes + (uint64_t)thread_count * 80 * 1048576 + 64 * 1048576;
    char *area = mmap(NULL, table + t->shadow_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1, 0);
    if (area == MAP_FAILED) die("mmap shared");
    t->shared = (struct shared *)area;
    t->shared->copy_capacity = capacity;
    t->shadow = (uint64_t)area + table;
    t->local = calloc(capacity, sizeof(struct iovec));
    t->remote = calloc(capacity, sizeof(struct iovec));
}

int main(int argc, char **argv) {
    if (argc < 10) { fprintf(stderr, "usage: %s HEAP_MB DIRTY_MB FILES FILE_KB PROCESSES THREADS DIR IN OUT [vm]\n", argv[0]); return 2; }
    heap_mb = atoi(argv[1]), dirty_mb = atoi(argv[2]), file_count = atoi(argv[3]), file_kb = atoi(argv[4]);
    process_count = atoi(argv[5]), thread_count = atoi(argv[6]);
    dir = argv[7], in_path = argv[8], out_path = argv[9];
    through_vm = argc > 10 && !strcmp(argv[10], "vm");
    if (process_count < 1 || process_count > PROCESS_MAX || thread_count < 1 || thread_count >= THREAD_MAX ||
        file_count > FILE_MAX || file_kb > 512) { fprintf(stderr, "a size is out of range\n"); return 2; }
    found_capacity = 65536;
    found = malloc(found_capacity * sizeof *found);
    memset(found, 1, found_capacity * sizeof *found);
    file_bytes = malloc((uint64_t)file_count * file_kb * 1024 + 1);
    memset(file_bytes, 1, (uint64_t)file_count * file_kb * 1024 + 1);
    for (int i = 0; i < file_count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/floor-%d", dir, i);
        file_fds[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (file_fds[i] < 0) die(path);
    }
    rewrite_files(7);
    int child_to[PROCESS_MAX], child_from[PROCESS_MAX];
    for (int p = 0; p < process_count; p++) make_shared(&targets[p]);
    for (int p = process_count - 1; p >= 0; p--) {
        int to[2], from[2];
        if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) die("pipe2");
        targets[p].pid = fork();
        if (targets[p].pid < 0) die("fork");
        if (targets[p].pid == 0) target_main(p, to[0], from[1], child_to, child_from);
        child_to[p] = to[1], child_from[p] = from[0];
        close(to[0]), close(from[1]);
    }
    for (int p = 0; p < process_count; p++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/pagemap", targets[p].pid);
        targets[p].pagemap = open(path, O_RDONLY | O_CLOEXEC);
        if (targets[p].pagemap < 0) die(path);
        while (!__atomic_load_n(&targets[p].shared->ready, __ATOMIC_SEQ_CST)) usleep(1000);
    }
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        parts[0] = 0;
        if (!strcmp(line, "checkpoint\n")) checkpoint();
        else if (!strcmp(line, "rollback\n")) rollback();
        else break;
    }
    for (int p = 0; p < process_count; p++) kill(targets[p].pid, SIGKILL);
    for (int i = 0; i < file_count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/floor-%d", dir, i);
        unlink(path);
    }
    return 0;
}
