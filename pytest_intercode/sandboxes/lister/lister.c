/* Reads the files of a sandbox from within it, whatever the agent has replaced there.
 *
 * The keeper (keeper.sh) is a bash that was loaded before the agent acted. It loads this as one of
 * its own builtins (`enable -f`), once and as early, and calls it in a child that it forks. So no
 * program is executed, and no library, path, variable or file of the sandbox's has a part in a
 * listing. Another process cannot look into that child either: it is guarded as the keeper is,
 * from its first instruction on, while a program that is executed can be looked into until it has
 * said that it must not be. What is left to an agent that is root is to stop or kill the child, or
 * to disturb its output; each spoils the listing, which counts against the agent.
 *
 * The output is authenticated, as other processes can reach the pipe that it goes to: its last 32
 * bytes are the HMAC-SHA256 of all before them, by a key that came with the request.
 *
 * Usage: lister UPTIME REQUEST    (UPTIME: seconds since the keeper has started)
 *        lister lower             take CAP_SETPCAP from what this process executes
 *        lister version           (as a program) print the SHA-256 of this source, and its compiler
 *
 * A request is a line of words, with %XX for each byte that is not plain:
 *
 *   KEY ENTRIES NAMES CONTENT MILLISECONDS COMMAND ...
 *
 * with the most entries, bytes of paths and link targets, and bytes of content; and a command:
 *
 *   tree PATH... - MOUNT...     list the whole disk, without the given paths and what is in them;
 *                    of other mounts, the given ones
 *   mark PATH... - MOUNT...     the same, with digests of the files that have changed in the last
 *                    UPTIME
 *   below PATH...    list what is at the paths, and all in these folders
 *   digest PATH...   list what is at the paths alone, with digests of files
 *   content PATH...  the same, with the content in place of the digest
 *
 * The output is a sequence of records, in which numbers are little-endian:
 *
 *   d DEPTH NAME         (u32, u32 and bytes) the entries that follow are in this folder: of depth
 *                        0, by its path, or in the last folder of a depth less one
 *   e ENTRY              see write_entry
 *   c LENGTH BYTES       (u32) a part of the content of the last entry; the last part is empty
 *   z END CONTENT        (u8, u64) why the output ends, and the bytes of content that were read
 *
 * There is no C library: one file serves every system that has a bash, with any C library. All
 * memory but three stacks is static, and these are bounded by what may be listed.
 */
#include <linux/capability.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/mman.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/stat.h>
#include <linux/time_types.h>
#include <asm/unistd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WHOLE = 1024 * 1024, /* these two are those of reading.py */
    BLOCK = 256 * 1024,
    OPEN = 32, /* folders on the way to the present one that are kept open */
    LONGEST_NAME = 255,
    LONGEST_LINK = 4096,
    OUTPUT = 1,
    CHECK_EVERY = 64, /* entries; the clock is looked at as often */
};

enum end {
    COMPLETE = 0,
    MANY_ENTRIES = 'e',
    LONG_NAMES = 'n',
    MUCH_CONTENT = 'c',
    NO_TIME = 't',
    REFUSED = 'r',
    ODD_REQUEST = 'o',
};

enum { DIGEST = 1, LEASED = 2, UNREADABLE = 4 }; /* flags of an entry */

/* -- the kernel */

static long call(long number, long a, long b, long c, long d, long e) {
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = 0;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#else
#error "this architecture has no system calls here yet"
#endif
}

static int open_at(int folder, const char *name, int flags) {
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    return (int)call(__NR_openat, folder, (long)name, flags, 0, 0);
}

static int open_folder(int folder, const char *name) {
    return open_at(folder, name, O_RDONLY | O_DIRECTORY);
}

static void close_file(int file) {
    call(__NR_close, file, 0, 0, 0, 0);
}

/* Look at what NAME is, or at FOLDER itself if NAME is empty; no link is followed. */
static long look_at(int folder, const char *name, struct statx *status) {
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH;
    return call(__NR_statx, folder, (long)name, flags, STATX_BASIC_STATS, (long)status);
}

static bool is_folder(const struct statx *status) {
    return (status->stx_mode & S_IFMT) == S_IFDIR;
}

static bool is_file(const struct statx *status) {
    return (status->stx_mode & S_IFMT) == S_IFREG;
}

static struct __kernel_timespec now(int clock) {
    struct __kernel_timespec time = {0, 0};
    call(__NR_clock_gettime, clock, (long)&time, 0, 0, 0);
    return time;
}

static int64_t milliseconds(void) {
    struct __kernel_timespec time = now(1 /* CLOCK_MONOTONIC */);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* -- memory; the compiler calls these, too */

void *memcpy(void *restrict to, const void *restrict from, size_t count) {
    unsigned char *t = to;
    const unsigned char *f = from;
    while (count--)
        *t++ = *f++;
    return to;
}

void *memset(void *to, int value, size_t count) {
    unsigned char *t = to;
    while (count--)
        *t++ = (unsigned char)value;
    return to;
}

static size_t length_of(const char *text) {
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

static bool equal(const char *one, const char *other) {
    while (*one && *one == *other)
        one++, other++;
    return *one == *other;
}


/* -- SHA-256 (FIPS 180-4) and HMAC (RFC 2104) */

struct sha256 {
    uint32_t state[8];
    uint64_t size;
    unsigned char block[64];
};

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t word, int bits) {
    return word >> bits | word << (32 - bits);
}

static void sha256_begin(struct sha256 *sha) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, first, sizeof first);
    sha->size = 0;
}

static void sha256_block(struct sha256 *sha, const unsigned char *block) {
    uint32_t w[64], *s = sha->state;
    uint32_t a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (turned(x, 7) ^ turned(x, 18) ^ x >> 3) + w[i - 7] +
               (turned(y, 17) ^ turned(y, 19) ^ y >> 10);
    }
/* The words change their names from step to step, and not their places. */
#define STEP(a, b, c, d, e, f, g, h, i)                                                         \
    h += (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + (g ^ (e & (f ^ g))) + ROUND[i] + w[i]; \
    d += h;                                                                                     \
    h += (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) | (c & (a | b)))
    for (int i = 0; i < 64; i += 8) {
        STEP(a, b, c, d, e, f, g, h, i);
        STEP(h, a, b, c, d, e, f, g, i + 1);
        STEP(g, h, a, b, c, d, e, f, i + 2);
        STEP(f, g, h, a, b, c, d, e, i + 3);
        STEP(e, f, g, h, a, b, c, d, i + 4);
        STEP(d, e, f, g, h, a, b, c, i + 5);
        STEP(c, d, e, f, g, h, a, b, i + 6);
        STEP(b, c, d, e, f, g, h, a, i + 7);
    }
#undef STEP
    s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
}

static void sha256_add(struct sha256 *sha, const void *data, size_t count) {
    const unsigned char *bytes = data;
    size_t used = sha->size % 64;
    sha->size += count;
    if (used) {
        size_t part = 64 - used < count ? 64 - used : count;
        memcpy(sha->block + used, bytes, part);
        bytes += part, count -= part;
        if (used + part < 64)
            return;
        sha256_block(sha, sha->block);
    }
    for (; count >= 64; bytes += 64, count -= 64)
        sha256_block(sha, bytes);
    memcpy(sha->block, bytes, count);
}

static void sha256_end(struct sha256 *sha, unsigned char digest[32]) {
    uint64_t bits = sha->size * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(sha, "\x80", 1);
    while (sha->size % 64 != 56)
        sha256_add(sha, "", 1);
    sha256_add(sha, length, sizeof length);
    for (int i = 0; i < 32; i++)
        digest[i] = (unsigned char)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

static struct sha256 inner; /* of all the output */
static unsigned char key[64];

static void pad_key(struct sha256 *sha, unsigned char with) {
    unsigned char padded[64];
    for (int i = 0; i < 64; i++)
        padded[i] = key[i] ^ with;
    sha256_begin(sha);
    sha256_add(sha, padded, sizeof padded);
}

/* -- the output */

static unsigned char output[64 * 1024];
static size_t output_used;
static uint64_t entries_left, names_left, content_left, content_read;
static int64_t deadline;

static void __attribute__((noreturn)) leave(int status) {
    for (;;)
        call(__NR_exit_group, status, 0, 0, 0, 0);
}

static void write_all(const unsigned char *bytes, size_t count) {
    while (count) {
        long done = call(__NR_write, OUTPUT, (long)bytes, (long)count, 0, 0);
        if (done == -EAGAIN) { /* the agent's shell shares the pipe, and may have said so */
            struct pollfd pipe = {OUTPUT, POLLOUT, 0};
            struct __kernel_timespec most = {1, 0};
            call(__NR_ppoll, (long)&pipe, 1, (long)&most, 0, 0);
            if (milliseconds() > deadline)
                leave(1);
        } else if (done > 0)
            bytes += done, count -= (size_t)done;
        else if (done != -EINTR)
            leave(1);
    }
}

static void flush(void) {
    sha256_add(&inner, output, output_used);
    write_all(output, output_used);
    output_used = 0;
}

static void put(const void *data, size_t count) {
    const unsigned char *bytes = data;
    while (count) {
        if (output_used == sizeof output)
            flush();
        size_t room = sizeof output - output_used, part = count < room ? count : room;
        memcpy(output + output_used, bytes, part);
        output_used += part, bytes += part, count -= part;
    }
}

static void put_number(uint64_t number, int bytes) {
    unsigned char little[8];
    for (int i = 0; i < bytes; i++)
        little[i] = (unsigned char)(number >> 8 * i);
    put(little, (size_t)bytes);
}

/* End the output, and say why. */
static void __attribute__((noreturn)) finish(enum end why) {
    struct sha256 outer;
    unsigned char digest[32];
    put("z", 1);
    put_number(why, 1);
    put_number(content_read, 8);
    flush();
    sha256_end(&inner, digest);
    pad_key(&outer, 0x5c);
    sha256_add(&outer, digest, sizeof digest);
    sha256_end(&outer, digest);
    write_all(digest, sizeof digest);
    leave(0);
}

static void check_time(void) {
    if (milliseconds() > deadline)
        finish(NO_TIME);
}

/* Return true where a call failed as what it was for is gone or of another type by now, or may not be
 * read. What else fails, as for want of memory, must not pass for a file that is not there.
 */
static bool is_gone(long error) {
    switch (-error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case EINVAL:
    case ENXIO:
    case ESTALE:
    case EACCES:
    case EPERM:
        return true;
    }
    finish(REFUSED);
}

static void count_content(size_t count) {
    check_time();
    if (count > content_left)
        finish(MUCH_CONTENT);
    content_left -= count;
    content_read += count;
}

static void count_entry(size_t names) {
    static int unchecked;
    if (++unchecked % CHECK_EVERY == 0)
        check_time();
    if (entries_left-- == 0)
        finish(MANY_ENTRIES);
    if (names > names_left)
        finish(LONG_NAMES);
    names_left -= names;
}

/* -- contents */

static unsigned char block[BLOCK] __attribute__((aligned(8)));

/* Whether the first bytes of the block are zeros; by words, as most of a sparse file is zeros. */
static bool block_is_zero(size_t count) {
    typedef uint64_t __attribute__((may_alias)) word;
    const word *words = (const word *)block;
    size_t i = 0;
    for (; i < count / 8; i++)
        if (words[i])
            return false;
    for (i *= 8; i < count; i++)
        if (block[i])
            return false;
    return true;
}

/* Read up to COUNT bytes at a place; fewer only at the end of the file. */
static size_t read_at(int file, uint64_t place, size_t count) {
    size_t got = 0;
    count_content(count);
    while (got < count) {
        long to = (long)(block + got), from = (long)(place + got);
        long done = call(__NR_pread64, file, to, (long)(count - got), from, 0);
        if (done > 0)
            got += (size_t)done;
        else if (done == 0)
            break; /* it became shorter meanwhile */
        else if (done != -EINTR)
            finish(REFUSED);
    }
    return got;
}

/* Return the next place from PLACE on at which there is data. */
static uint64_t next_data(int file, uint64_t place) {
    long data = call(__NR_lseek, file, (long)place, 3 /* SEEK_DATA */, 0, 0);
    if (data == -ENXIO)
        return UINT64_MAX; /* a hole up to the end */
    return data < 0 ? place : (uint64_t)data; /* not every file system knows its holes */
}

static void add_number(struct sha256 *sha, uint64_t number) {
    char text[21];
    int at = sizeof text;
    text[--at] = ':';
    do
        text[--at] = (char)('0' + number % 10);
    while (number /= 10);
    sha256_add(sha, text + at, sizeof text - (size_t)at);
}

/* Take what digest_of in reading.py takes, so that both ways of reading agree. */
static void take_digest(int file, uint64_t size, unsigned char digest[32]) {
    struct sha256 sha;
    bool whole = size <= WHOLE;
    sha256_begin(&sha);
    if (!whole)
        add_number(&sha, size);
    uint64_t place = whole ? 0 : next_data(file, 0);
    while (place < size) {
        place -= place % BLOCK;
        size_t wanted = size - place < BLOCK ? (size_t)(size - place) : BLOCK;
        size_t got = read_at(file, place, wanted);
        if (whole || !block_is_zero(got)) {
            if (!whole)
                add_number(&sha, place);
            sha256_add(&sha, block, got);
        }
        place += BLOCK;
        if (!whole)
            place = next_data(file, place);
    }
    sha256_end(&sha, digest);
}

static void put_content(int file, uint64_t size) {
    size_t got = BLOCK;
    for (uint64_t place = 0; place < size && got == BLOCK; place += got) {
        got = read_at(file, place, size - place < BLOCK ? (size_t)(size - place) : BLOCK);
        if (got == 0)
            break;
        put("c", 1);
        put_number(got, 4);
        put(block, got);
    }
    put("c", 1);
    put_number(0, 4);
}

/* -- entries */

enum reading { PLAIN, DIGESTS, CONTENTS };

static void put_time(const struct statx_timestamp *time) {
    put_number((uint64_t)time->tv_sec, 8);
    put_number(time->tv_nsec, 4);
}

/* Write what NAME in FOLDER is, as SHOWN; PATH is the length of its path. Return false, and write
 * nothing, if it is gone.
 *
 *   e FLAGS NAME LINK     u8, u32, u16: the lengths of the name and of a link's target
 *   MODE UID GID MAJOR MINOR      u32 each; the last two are a device's own
 *   SIZE MTIME CTIME INODE        u64; i64 and u32 each; u64
 *   the name, the target, and with the flag DIGEST, 32 bytes
 */
static bool write_entry(int folder, const char *name, const char *shown, size_t path,
                        struct statx *status, enum reading reading) {
    static char target[LONGEST_LINK];
    unsigned char digest[32];
    unsigned flags = 0;
    long length = 0;
    int file = -1;
    if ((status->stx_mode & S_IFMT) == S_IFLNK) {
        length = call(__NR_readlinkat, folder, (long)name, (long)target, sizeof target, 0);
        if (length < 0)
            return !is_gone(length);
    }
    count_entry(path + (size_t)length);
    if (is_file(status) && reading != PLAIN) {
        file = open_at(folder, name, O_RDONLY);
        if (file == -EAGAIN)
            flags = LEASED; /* by a process that could make us wait */
        else if (file == -EACCES || file == -EPERM)
            flags = UNREADABLE;
        else if (file < 0)
            return !is_gone(file);
        if (file >= 0 && (look_at(file, "", status) != 0 || !is_file(status))) {
            close_file(file);
            return false;
        }
        if (file >= 0 && reading == DIGESTS) {
            take_digest(file, status->stx_size, digest);
            flags = DIGEST;
        }
    }
    size_t shown_length = length_of(shown);
    put("e", 1);
    put_number(flags, 1);
    put_number(shown_length, 4);
    put_number((uint64_t)length, 2);
    put_number(status->stx_mode, 4);
    put_number(status->stx_uid, 4);
    put_number(status->stx_gid, 4);
    put_number(status->stx_rdev_major, 4);
    put_number(status->stx_rdev_minor, 4);
    put_number(status->stx_size, 8);
    put_time(&status->stx_mtime);
    put_time(&status->stx_ctime);
    put_number(status->stx_ino, 8);
    put(shown, shown_length);
    put(target, (size_t)length);
    if (flags == DIGEST)
        put(digest, sizeof digest);
    if (reading == CONTENTS && is_file(status))
        put_content(file, file >= 0 ? status->stx_size : 0);
    if (file >= 0)
        close_file(file);
    return true;
}

/* -- stacks, which grow as they need */

struct stack {
    char *bytes;
    size_t used, room;
};

static void push(struct stack *stack, const void *data, size_t count) {
    enum { FIRST = 64 * 1024 };
    while (stack->room - stack->used < count) {
        size_t room = stack->room ? 2 * stack->room : FIRST;
        long made, old = (long)stack->bytes, flags = MAP_PRIVATE | MAP_ANONYMOUS;
        if (stack->room)
            made = call(__NR_mremap, old, (long)stack->room, (long)room, MREMAP_MAYMOVE, 0);
        else
            made = call(__NR_mmap, 0, (long)room, PROT_READ | PROT_WRITE, flags, -1);
        if (made < 0 && made > -4096)
            finish(REFUSED);
        stack->bytes = (char *)made;
        stack->room = room;
    }
    memcpy(stack->bytes + stack->used, data, count);
    stack->used += count;
}

/* -- the walk
 *
 * A folder is read to its end before those in it are entered, so that nothing depends on how a file
 * system goes on with a folder that was closed and opened again. However deep the walk is, no more
 * than OPEN folders are open: those above are opened once more, from the top.
 */

struct level {
    size_t path; /* where its path ends */
    int folder;  /* -1 for one that was closed */
};

struct pending { /* a folder that is to be entered; its name lies before, and a zero byte */
    uint32_t name;
    uint32_t depth;
};

static struct stack path, levels, pendings; /* of the present folder; on the way to it; to come */
static char *skipped;                       /* paths, each with a zero byte; then an empty one */
static struct device {
    uint32_t major, minor;
} device; /* that the walk stays on */

static struct level *level_at(size_t depth) {
    return (struct level *)levels.bytes + depth;
}

static size_t depth_reached(void) {
    return levels.used / sizeof(struct level); /* levels, with the top */
}

static void close_level(size_t depth) {
    struct level *level = level_at(depth);
    if (level->folder >= 0)
        close_file(level->folder);
    level->folder = -1;
}

/* Go back to the level of a depth. */
static void go_back(size_t depth) {
    while (depth_reached() > depth + 1) {
        close_level(depth_reached() - 1);
        levels.used -= sizeof(struct level);
    }
    path.used = level_at(depth)->path;
}

static bool on_device(int folder) {
    struct statx status;
    long error = look_at(folder, "", &status);
    if (error)
        return !is_gone(error);
    return status.stx_dev_major == device.major && status.stx_dev_minor == device.minor;
}

/* Open a folder in another one; return -1 if there is none on this device. */
static int open_inner(int above, const char *name) {
    int folder = open_folder(above, name);
    if (folder < 0)
        return is_gone(folder) ? -1 : folder;
    if (on_device(folder))
        return folder;
    close_file(folder);
    return -1;
}

/* Enter a folder by a descriptor of it. */
static void enter(int folder) {
    struct level level = {path.used, folder};
    push(&levels, &level, sizeof level);
    if (depth_reached() > OPEN + 1)
        close_level(depth_reached() - 1 - OPEN); /* the top stays open */
}

/* Return the present folder, opened again if need be; -1 if it is not there any more. */
static int present_folder(void) {
    size_t last = depth_reached() - 1, depth = last;
    while (level_at(depth)->folder < 0)
        depth--;
    int folder = level_at(depth)->folder;
    for (; depth < last; depth++) {
        char name[LONGEST_NAME + 1];
        size_t begin = level_at(depth)->path + 1, end = level_at(depth + 1)->path;
        memcpy(name, path.bytes + begin, end - begin);
        name[end - begin] = 0;
        folder = open_inner(folder, name);
        if (folder < 0)
            return -1;
        level_at(depth + 1)->folder = folder;
        if (depth + 1 > OPEN)
            close_level(depth + 1 - OPEN);
    }
    return folder;
}

static bool is_skipped(void) {
    for (const char *each = skipped; *each; each += length_of(each) + 1)
        if (equal(each, path.bytes))
            return true;
    return false;
}

static void put_folder(const char *name, size_t length) {
    put("d", 1);
    put_number(depth_reached(), 4);
    put_number(length, 4);
    put(name, length);
}

static void note_pending(const char *name, size_t length) {
    struct pending pending = {(uint32_t)length, (uint32_t)depth_reached()};
    push(&pendings, name, length + 1);
    push(&pendings, &pending, sizeof pending);
}

/* List what is in the present folder; SINCE is when a file has to have changed to be read. */
static void list_folder(int folder, int64_t since) {
    static char names[32 * 1024];
    struct record { /* linux_dirent64 */
        uint64_t inode;
        int64_t next;
        uint16_t size;
        uint8_t type;
        char name[];
    };
    size_t above = path.used;
    for (;;) {
        long count = call(__NR_getdents64, folder, (long)names, sizeof names, 0, 0);
        if (count == 0 || (count < 0 && is_gone(count)))
            return;
        for (long at = 0; at < count; at += ((struct record *)(names + at))->size) {
            const char *name = ((struct record *)(names + at))->name;
            struct statx status;
            if (equal(name, ".") || equal(name, ".."))
                continue;
            size_t length = length_of(name);
            if (length > LONGEST_NAME) /* no usual file system has it */
                finish(LONG_NAMES);
            path.used = above;
            push(&path, "/", 1);
            push(&path, name, length + 1);
            bool skip = is_skipped();
            size_t whole = path.used - 1;
            path.used = above;
            long error = skip ? 0 : look_at(folder, name, &status);
            if (skip || (error && is_gone(error)))
                continue;
            bool fresh = status.stx_ctime.tv_sec >= since;
            if (write_entry(folder, name, name, whole, &status, fresh ? DIGESTS : PLAIN) &&
                is_folder(&status))
                note_pending(name, length);
        }
    }
}

/* List what is below a folder, and on its device; TOP is its path, or nothing for the root. */
static void walk(int folder, const char *top, int64_t since) {
    struct statx status;
    if (folder < 0 || look_at(folder, "", &status) != 0)
        finish(REFUSED);
    device = (struct device){status.stx_dev_major, status.stx_dev_minor};
    path.used = levels.used = 0;
    push(&path, top, length_of(top));
    put_folder(top, path.used);
    enter(folder);
    list_folder(folder, since);
    while (pendings.used) {
        struct pending next;
        pendings.used -= sizeof next;
        memcpy(&next, pendings.bytes + pendings.used, sizeof next);
        pendings.used -= next.name + 1;
        char *name = pendings.bytes + pendings.used; /* until something is pushed there */
        go_back(next.depth - 1);
        int above = present_folder();
        folder = above < 0 ? -1 : open_inner(above, name);
        if (folder < 0)
            continue;
        put_folder(name, next.name);
        push(&path, "/", 1);
        push(&path, name, next.name);
        enter(folder);
        list_folder(folder, since);
    }
    close_level(0);
}

/* -- requests */

/* Open the folder that PATH is in, through no link; LAST becomes its name there. PATH is changed. */
static int open_above(char *path, char **last) {
    int folder = open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
    char *name = path;
    while (*name == '/')
        name++;
    for (;;) {
        char *end = name;
        while (*end && *end != '/')
            end++;
        *last = name;
        if (!*end || folder < 0)
            return folder;
        *end = 0;
        int next = open_at(folder, name, O_PATH | O_DIRECTORY);
        *end = '/';
        close_file(folder);
        folder = next;
        name = end + 1;
    }
}

static void list_path(char *path, enum reading reading, bool below) {
    struct statx status;
    char *name;
    int above = open_above(path, &name);
    long error = above < 0 ? above : look_at(above, name, &status);
    bool there = !(error && is_gone(error)) &&
                 write_entry(above, name, path, length_of(path), &status, reading);
    int folder = -1;
    if (there && below && is_folder(&status)) {
        folder = open_folder(above, *name ? name : ".");
        if (folder < 0)
            is_gone(folder);
    }
    if (above >= 0)
        close_file(above);
    if (folder >= 0)
        walk(folder, equal(path, "/") ? "" : path, INT64_MAX);
}

/* List the root and, of MOUNTS, those that are mounts: each has a zero byte, the last is empty. */
static void list_disk(char *mounts, int64_t since) {
    walk(open_folder(AT_FDCWD, "/"), "", since);
    struct device root = device;
    for (char *mount = mounts; *mount; mount += length_of(mount) + 1) {
        path.used = 0;
        push(&path, mount, length_of(mount) + 1);
        char *name;
        int above = is_skipped() ? -ENOENT : open_above(mount, &name);
        int folder = above < 0 ? above : open_folder(above, name);
        if (above >= 0)
            close_file(above);
        if (folder < 0 && is_gone(folder))
            continue;
        device = root;
        if (on_device(folder))
            close_file(folder);
        else
            walk(folder, mount, since);
    }
}

static int hex(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Take the next word of a request, and end it with a zero byte; it is empty after the last. */
static char *next_word(char **rest) {
    char *word = *rest, *to = word, *from = word;
    while (*from && *from != ' ') {
        if (*from == '%') {
            if (hex(from[1]) < 0 || hex(from[2]) < 0)
                finish(ODD_REQUEST);
            *to++ = (char)(hex(from[1]) << 4 | hex(from[2]));
            from += 3;
        } else
            *to++ = *from++;
    }
    *rest = *from ? from + 1 : from;
    *to = 0;
    return word;
}

static uint64_t number_in(const char *word) {
    uint64_t number = 0;
    if (!*word)
        finish(ODD_REQUEST);
    for (; *word; word++) {
        if (*word < '0' || *word > '9' || number > UINT64_MAX / 10 - 1)
            finish(ODD_REQUEST);
        number = number * 10 + (uint64_t)(*word - '0');
    }
    return number;
}

static void __attribute__((noreturn)) answer(const char *uptime, char *request) {
    deadline = INT64_MAX;
    /* The guard of the keeper is inherited; this is for runtimes that do not know that one. */
    call(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    char *word = next_word(&request);
    for (int i = 0; i < 64 && word[i]; i++)
        key[i] = (unsigned char)word[i];
    pad_key(&inner, 0x36);
    entries_left = number_in(next_word(&request));
    names_left = number_in(next_word(&request));
    content_left = number_in(next_word(&request));
    deadline = milliseconds() + (int64_t)number_in(next_word(&request));
    char *command = next_word(&request);
    bool marks = equal(command, "mark"), below = equal(command, "below");
    enum reading reading = equal(command, "content")  ? CONTENTS
                           : equal(command, "digest") ? DIGESTS
                                                      : PLAIN;
    skipped = "\0";
    if (marks || equal(command, "tree")) {
        static struct stack paths;
        size_t mounts = 0;
        while (*request) {
            word = next_word(&request);
            if (equal(word, "-")) { /* a path begins with a slash */
                push(&paths, "", 1);
                mounts = paths.used;
            } else
                push(&paths, word, length_of(word) + 1);
        }
        push(&paths, "", 1);
        if (!mounts)
            finish(ODD_REQUEST);
        skipped = paths.bytes;
        int64_t began = now(0 /* CLOCK_REALTIME */).tv_sec - (int64_t)number_in(uptime);
        list_disk(paths.bytes + mounts, marks ? began - 2 : INT64_MAX); /* both of these clocks tell whole seconds */
    } else if (below || reading != PLAIN)
        while (*request)
            list_path(next_word(&request), reading, below);
    else
        finish(ODD_REQUEST);
    finish(COMPLETE);
}

static int run(char **words, int count) {
    if (count == 1 && equal(words[0], "lower"))
        return call(__NR_prctl, PR_CAPBSET_DROP, CAP_SETPCAP, 0, 0, 0) != 0;
    if (count == 1 && equal(words[0], "version")) {
        static const unsigned char version[] = VERSION "\n";
        write_all(version, sizeof version - 1);
        return 0;
    }
    if (count == 2)
        answer(words[0], words[1]);
    return 2;
}

/* -- as a builtin of bash, by the interface that all its versions since 2.0 have */

struct word_list {
    struct word_list *next;
    struct {
        char *text;
        int flags;
    } *word;
};

static int builtin(struct word_list *list) {
    char *words[2];
    int count = 0;
    for (; list && count < 2; list = list->next)
        words[count++] = list->word->text;
    return list ? 2 : run(words, count);
}

static char *const documentation[] = {"Reads the files of a sandbox.", 0};

__attribute__((visibility("default"))) struct {
    const char *name;
    int (*function)(struct word_list *);
    int flags;
    char *const *long_doc;
    const char *short_doc;
    char *handle;
} lister_struct = {"lister", builtin, 1 /* it is enabled */, documentation, "lister UPTIME REQUEST", 0};

/* -- as a program, for tests */

__attribute__((used, noreturn)) static void start(long *stack) {
    leave(run((char **)stack + 2, (int)stack[0] - 1));
}

__asm__(".globl _start\n"
        ".hidden _start\n"
        "_start:\n"
#if defined(__x86_64__)
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call start\n"
#else
        "    mov x0, sp\n"
        "    bl start\n"
#endif
);
