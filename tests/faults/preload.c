/* Faults of the system below a process: a slow or failing disk, a shifted clock.

   Loaded by LD_PRELOAD. ERRATA_FAULTS names a file with three numbers, which is read again at most
   every 100 ms: how long fsync takes in ms, whether it fails (0 or 1), and the shift of the clock in
   ms. For each fsync that was harmed, one byte is appended to the file of that name with ".harmed"
   at its end.

   Only CLOCK_REALTIME is shifted. Waits until an absolute time are shifted back: the kernel counts
   them by its own clock, and would wait as long as the shift. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { REREAD_MS = 100, MOST = 4096 };

static atomic_long fsync_ms, fsync_fails, shift_ms;
static atomic_long next_ms; /* when to read the file again, by the monotonic clock */

/* The function that is overridden. The default version of a symbol is not always what dlsym finds:
   pthread_cond_timedwait also has an older one that knows another structure. */
#define REAL(name, version)                                                     \
    static __typeof__(&name) real;                                              \
    if (!real) {                                                                \
        void *found = dlvsym(RTLD_NEXT, #name, version);                     \
        real = (__typeof__(&name))(found ? found : dlsym(RTLD_NEXT, #name));    \
    }

static int real_clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime, "")
    return real(clock, now);
}

static void load(void) {
    struct timespec now;
    if (real_clock_gettime(CLOCK_MONOTONIC, &now)) return;
    long now_ms = now.tv_sec * 1000 + now.tv_nsec / 1000000, due_ms = atomic_load(&next_ms);
    if (now_ms < due_ms) return;
    if (!atomic_compare_exchange_strong(&next_ms, &due_ms, now_ms + REREAD_MS)) return;
    const char *path = getenv("ERRATA_FAULTS");
    if (!path) return;
    int before = errno, file = open(path, O_RDONLY | O_CLOEXEC);
    char text[128];
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (length > 0) {
        text[length] = 0;
        char *rest = text;
        atomic_store(&fsync_ms, strtol(rest, &rest, 10));
        atomic_store(&fsync_fails, strtol(rest, &rest, 10));
        atomic_store(&shift_ms, strtol(rest, &rest, 10));
    }
    errno = before;
}

static void add(struct timespec *time, long ms) {
    long ns = time->tv_nsec + ms % 1000 * 1000000;
    time->tv_sec += ms / 1000 + (ns >= 1000000000) - (ns < 0);
    time->tv_nsec = ns >= 1000000000 ? ns - 1000000000 : ns < 0 ? ns + 1000000000 : ns;
}

/* -- the disk -- */

static int harmed(void) {
    load();
    long ms = atomic_load(&fsync_ms), fails = atomic_load(&fsync_fails);
    if (!ms && !fails) return 0;
    char path[MOST];
    const char *control = getenv("ERRATA_FAULTS");
    if (control && snprintf(path, MOST, "%s.harmed", control) < MOST) {
        int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        if (file >= 0) {
            if (write(file, ".", 1) < 0) {} /* it is only a count */
            close(file);
        }
    }
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
    if (fails) errno = EIO;
    return fails != 0;
}

int fsync(int file) {
    REAL(fsync, "")
    return harmed() ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync, "")
    return harmed() ? -1 : real(file);
}

/* -- the clock -- */

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = real_clock_gettime(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        load();
        add(now, atomic_load(&shift_ms));
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    if (!failed) *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *now) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return (time_t)-1;
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0;
}

/* A deadline as the kernel knows it. That a condition waits by the monotonic clock is told by the
   time: no machine has been up since 1985. */
static struct timespec unshifted(const struct timespec *until) {
    struct timespec time = *until;
    if (time.tv_sec > 500000000) add(&time, -atomic_load(&shift_ms));
    return time;
}

int pthread_cond_timedwait(
    pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
    const struct timespec *restrict until) {
    REAL(pthread_cond_timedwait, "GLIBC_2.3.2")
    struct timespec time = unshifted(until);
    return real(cond, mutex, &time);
}

int pthread_cond_clockwait(
    pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock,
    const struct timespec *restrict until) {
    REAL(pthread_cond_clockwait, "")
    struct timespec time = unshifted(until);
    return real(cond, mutex, clock, &time);
}

int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict until) {
    REAL(cnd_timedwait, "")
    struct timespec time = unshifted(until);
    return real(cond, mutex, &time);
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until) {
    REAL(sem_timedwait, "GLIBC_2.34")
    struct timespec time = unshifted(until);
    return real(sem, &time);
}

int sem_clockwait(sem_t *restrict sem, clockid_t clock, const struct timespec *restrict until) {
    REAL(sem_clockwait, "")
    struct timespec time = unshifted(until);
    return real(sem, clock, &time);
}
