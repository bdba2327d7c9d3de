/*
 * Checks condition variables and semaphores against POSIX, with many threads, deadlines, cancellation and
 * fork. It runs with glibc's own functions and with ours; `stress ours` checks that ours are in use. It
 * exits with 0, or prints what failed. Nothing depends on how long anything takes, except that it must end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                   \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

static struct timespec after_us(clockid_t clock, long us)
{
    struct timespec at;

    CHECK(clock_gettime(clock, &at) == 0);
    at.tv_nsec += us * 1000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* 1. Static initialisers. Producers signal and consumers wait, with random deadlines. */

enum { PRODUCERS = 3, CONSUMERS = 3, ITEMS = 20000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_cond_t emptied = PTHREAD_COND_INITIALIZER;
static int queued, produced, consumed, timed_out;

static void *produce(void *data)
{
    unsigned int random = (unsigned int)(intptr_t)data;

    for (;;) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        while (queued == 8 && produced < ITEMS)
            CHECK(pthread_cond_wait(&emptied, &lock) == 0);
        if (produced == ITEMS) {
            CHECK(pthread_cond_broadcast(&emptied) == 0 && pthread_cond_broadcast(&filled) == 0);
            CHECK(pthread_mutex_unlock(&lock) == 0);
            return NULL;
        }
        queued++;
        produced++;
        /* Half of the signals are sent without the mutex. */
        if (rand_r(&random) % 2) {
            CHECK(pthread_cond_signal(&filled) == 0);
            CHECK(pthread_mutex_unlock(&lock) == 0);
        } else {
            CHECK(pthread_mutex_unlock(&lock) == 0);
            CHECK(pthread_cond_signal(&filled) == 0);
        }
    }
}

static void *consume(void *data)
{
    unsigned int random = (unsigned int)(intptr_t)data;

    for (;;) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        while (queued == 0 && consumed < ITEMS) {
            struct timespec at = after_us(CLOCK_REALTIME, rand_r(&random) % 300);
            int outcome = rand_r(&random) % 2 ? pthread_cond_wait(&filled, &lock)
                                              : pthread_cond_timedwait(&filled, &lock, &at);
            CHECK(outcome == 0 || outcome == ETIMEDOUT);
            timed_out += outcome == ETIMEDOUT;
        }
        if (queued == 0) {
            CHECK(pthread_mutex_unlock(&lock) == 0);
            return NULL;
        }
        queued--;
        if (++consumed == ITEMS)
            CHECK(pthread_cond_broadcast(&filled) == 0);
        CHECK(pthread_cond_signal(&emptied) == 0);
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
}

static void items(void)
{
    pthread_t threads[PRODUCERS + CONSUMERS];

    for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
        CHECK(pthread_create(&threads[i], NULL, i < PRODUCERS ? produce : consume,
                             (void *)(intptr_t)(i + 1)) == 0);
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(consumed == ITEMS && queued == 0);
}

/* 2. Barriers that live on the stack for one round each: broadcast, then destroy at once. */

struct barrier {
    pthread_mutex_t lock;
    pthread_cond_t open;
    int waiting, is_open, left;
};

static void *pass(void *data)
{
    struct barrier *barrier = data;

    CHECK(pthread_mutex_lock(&barrier->lock) == 0);
    barrier->waiting++;
    while (!barrier->is_open) {
        struct timespec at = after_us(CLOCK_MONOTONIC, 100);
        int outcome = pthread_cond_timedwait(&barrier->open, &barrier->lock, &at);
        CHECK(outcome == 0 || outcome == ETIMEDOUT);
    }
    barrier->left++;
    CHECK(pthread_mutex_unlock(&barrier->lock) == 0);
    return NULL;
}

static void barriers(void)
{
    pthread_condattr_t monotonic;

    CHECK(pthread_condattr_init(&monotonic) == 0);
    CHECK(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
    for (int round = 0; round < 200; round++) {
        struct barrier barrier = { .lock = PTHREAD_MUTEX_INITIALIZER };
        pthread_t threads[4];

        CHECK(pthread_cond_init(&barrier.open, &monotonic) == 0);
        for (int i = 0; i < 4; i++)
            CHECK(pthread_create(&threads[i], NULL, pass, &barrier) == 0);
        do {
            CHECK(pthread_mutex_lock(&barrier.lock) == 0);
            barrier.is_open = barrier.waiting == 4;
            CHECK(pthread_mutex_unlock(&barrier.lock) == 0);
        } while (!barrier.is_open && sched_yield() == 0);
        CHECK(pthread_cond_broadcast(&barrier.open) == 0);
        CHECK(pthread_cond_destroy(&barrier.open) == 0);
        memset(&barrier.open, 0x5a, sizeof barrier.open);
        for (int i = 0; i < 4; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(barrier.left == 4);
    }
}

/* 3. Deadlines that are past, invalid, and on both clocks. */

static void deadlines(void)
{
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    struct timespec past = { .tv_sec = 1 }, wrong = { .tv_nsec = 1000000000 };
    struct timespec soon;

    CHECK(pthread_mutex_lock(&lock) == 0);
    CHECK(pthread_cond_timedwait(&cond, &lock, &past) == ETIMEDOUT);
    CHECK(pthread_cond_timedwait(&cond, &lock, &wrong) == EINVAL);
    soon = after_us(CLOCK_REALTIME, 500);
    CHECK(pthread_cond_timedwait(&cond, &lock, &soon) == ETIMEDOUT);
    soon = after_us(CLOCK_MONOTONIC, 500);
    CHECK(pthread_cond_clockwait(&cond, &lock, CLOCK_MONOTONIC, &soon) == ETIMEDOUT);
    CHECK(after_us(CLOCK_MONOTONIC, 0).tv_sec >= soon.tv_sec);
    soon = after_us(CLOCK_REALTIME, 500);
    CHECK(pthread_cond_clockwait(&cond, &lock, CLOCK_REALTIME, &soon) == ETIMEDOUT);
    CHECK(pthread_mutex_trylock(&lock) == EBUSY);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    CHECK(pthread_cond_signal(&cond) == 0 && pthread_cond_broadcast(&cond) == 0);
    CHECK(pthread_cond_destroy(&cond) == 0);
}

/* 4. Cancellation: the cleanup handler runs with the mutex locked; the condition variable still works. */

static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int cleaned, started, is_disabled;

static void clean(void *data)
{
    (void)data;
    cleaned++;
    CHECK(pthread_mutex_trylock(&lock) == EBUSY);
    CHECK(pthread_mutex_unlock(&lock) == 0);
}

static void *wait_for_ever(void *data)
{
    (void)data;
    CHECK(pthread_mutex_lock(&lock) == 0);
    pthread_cleanup_push(clean, NULL);
    if (is_disabled)
        CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    started++;
    if (is_disabled) {
        /* It may end spuriously, but not by cancellation. */
        while (is_disabled)
            CHECK(pthread_cond_wait(&never, &lock) == 0);
        CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    }
    for (;;)
        CHECK(pthread_cond_wait(&never, &lock) == 0);
    pthread_cleanup_pop(1);
    return NULL;
}

static void cancel_one(int waits_first, int disabled)
{
    pthread_t thread;
    void *result;
    int before = cleaned, waits = 0;

    started = 0;
    is_disabled = disabled;
    CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
    while (waits_first && !waits) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        waits = started;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        sched_yield();
    }
    CHECK(pthread_cancel(thread) == 0);
    if (disabled) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        is_disabled = 0;
        CHECK(pthread_cond_broadcast(&never) == 0);
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK(cleaned == before + 1 || !waits_first);
}

static void cancellation(void)
{
    for (int round = 0; round < 200; round++) {
        cancel_one(1, 0);
        cancel_one(1, 1);
    }
    /* Cancelled anywhere, even before its first wait; then mutex and handler may not be reached. */
    for (int round = 0; round < 200; round++) {
        cancel_one(0, 0);
        CHECK(pthread_mutex_trylock(&lock) == 0);
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    CHECK(pthread_cond_broadcast(&never) == 0 && pthread_cond_destroy(&never) == 0);
}

/* 5. Between processes: condition variable, mutex and semaphore in shared memory. */

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t turned;
    sem_t sem;
    int turn;
};

static void take_turns(struct shared *shared, int mine)
{
    for (int round = 0; round < 500; round++) {
        CHECK(pthread_mutex_lock(&shared->lock) == 0);
        while (shared->turn % 2 != mine)
            CHECK(pthread_cond_wait(&shared->turned, &shared->lock) == 0);
        shared->turn++;
        CHECK(pthread_cond_signal(&shared->turned) == 0);
        CHECK(pthread_mutex_unlock(&shared->lock) == 0);
    }
}

static void between_processes(void)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t mutexattr;
    pthread_condattr_t condattr;
    int status;
    pid_t child;

    CHECK(shared != MAP_FAILED);
    CHECK(pthread_mutexattr_init(&mutexattr) == 0 && pthread_condattr_init(&condattr) == 0);
    CHECK(pthread_mutexattr_setpshared(&mutexattr, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_condattr_setpshared(&condattr, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutex_init(&shared->lock, &mutexattr) == 0);
    CHECK(pthread_cond_init(&shared->turned, &condattr) == 0);
    CHECK(sem_init(&shared->sem, 1, 0) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        take_turns(shared, 1);
        for (int i = 0; i < 500; i++)
            CHECK(sem_post(&shared->sem) == 0);
        _exit(0);
    }
    take_turns(shared, 0);
    for (int i = 0; i < 500; i++)
        CHECK(sem_wait(&shared->sem) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(shared->turn == 1000);
    CHECK(pthread_cond_destroy(&shared->turned) == 0);
}

/* 6. fork while others wait: in the child the same condition variable is like new. */

static pthread_cond_t forked = PTHREAD_COND_INITIALIZER;
static int go, waiting;

static void *wait_for_go(void *data)
{
    CHECK(pthread_mutex_lock(&lock) == 0);
    waiting++;
    while (!go)
        CHECK(pthread_cond_wait(&forked, &lock) == 0);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return data;
}

static void run_waiters(pthread_t *threads)
{
    int all = 0;

    waiting = go = 0;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_for_go, NULL) == 0);
    while (!all) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        all = waiting == 4;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        sched_yield();
    }
}

static void release_waiters(pthread_t *threads)
{
    CHECK(pthread_mutex_lock(&lock) == 0);
    go = 1;
    CHECK(pthread_mutex_unlock(&lock) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_cond_signal(&forked) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void forks(int child_uses_threads)
{
    for (int round = 0; round < 20; round++) {
        pthread_t threads[4];
        int status;
        pid_t child;

        run_waiters(threads);
        CHECK(pthread_mutex_lock(&lock) == 0);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            pthread_t mine[4];

            /* POSIX allows no more than exec here, but programs do more. glibc itself may hang, so this
             * only tests ours. */
            CHECK(pthread_mutex_unlock(&lock) == 0);
            if (child_uses_threads) {
                alarm(60);
                run_waiters(mine);
                release_waiters(mine);
            }
            _exit(0);
        }
        CHECK(pthread_mutex_unlock(&lock) == 0);
        release_waiters(threads);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

/* 7. Semaphores: many threads, deadlines, a post in a signal handler. */

static sem_t slots, handled;
static int taken;

static void *take_slots(void *data)
{
    unsigned int random = (unsigned int)(intptr_t)data;

    for (int i = 0; i < 5000;) {
        struct timespec at = after_us(CLOCK_REALTIME, rand_r(&random) % 200);
        int outcome = rand_r(&random) % 2 ? sem_wait(&slots) : sem_timedwait(&slots, &at);

        if (outcome == 0) {
            __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
            i++;
        } else {
            CHECK(outcome == -1 && (errno == ETIMEDOUT || errno == EINTR));
        }
    }
    return NULL;
}

static void handle(int signal)
{
    (void)signal;
    sem_post(&handled);
}

static void semaphores(void)
{
    struct timespec wrong = { .tv_nsec = -1 }, past = { .tv_sec = 1 };
    pthread_t threads[2];

    CHECK(sem_init(&slots, 0, 0) == 0 && sem_init(&handled, 0, 0) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, take_slots, (void *)(intptr_t)(i + 1)) == 0);
    for (int i = 0; i < 10000; i++)
        CHECK(sem_post(&slots) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(taken == 10000);
    CHECK(sem_timedwait(&slots, &past) == -1 && errno == ETIMEDOUT);
    CHECK(sem_timedwait(&slots, &wrong) == -1 && errno == EINVAL);
    CHECK(signal(SIGUSR1, handle) != SIG_ERR);
    for (int i = 0; i < 500; i++) {
        CHECK(raise(SIGUSR1) == 0);
        while (sem_wait(&handled) != 0)
            CHECK(errno == EINTR);
    }
    CHECK(sem_destroy(&slots) == 0 && sem_destroy(&handled) == 0);
}

int main(int count, char **arguments)
{
    int expects_ours = count == 2 && strcmp(arguments[1], "ours") == 0;
    const char *names[] = { "pthread_cond_wait", "pthread_cond_signal", "pthread_cancel", "sem_wait" };

    for (int i = 0; i < 4; i++) {
        Dl_info info;

        CHECK(dladdr(dlsym(RTLD_DEFAULT, names[i]), &info) != 0);
        CHECK((strstr(info.dli_fname, "idlewise_preload") != NULL) == expects_ours);
    }
    /* A lost wake-up is a hang. This is far longer than any machine takes. */
    alarm(600);
    items();
    barriers();
    deadlines();
    cancellation();
    between_processes();
    forks(expects_ours);
    semaphores();
    puts("ok");
    return 0;
}
