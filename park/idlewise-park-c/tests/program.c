/* Checks what the header promises, as a C program. Exits with 0, or the line that failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "idlewise_park.h"

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                   \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

enum { ROUNDS = 2000 };

struct pair {
    idlewise_parker *parker;
    idlewise_unparker *unparker;
    idlewise_unparker *back;
    int value;
};

static void *answer(void *data)
{
    struct pair *pair = data;
    for (int round = 1; round <= ROUNDS; round++) {
        CHECK(idlewise_parker_park(pair->parker, IDLEWISE_FOREVER) == 0);
        CHECK(pair->value == round);
        CHECK(idlewise_unparker_unpark(pair->back) == 0);
    }
    return NULL;
}

/* A call that is past its deadline when it begins is not a wait. On a busy machine that can happen to a short
 * timeout, so a longer one is tried then. */
static void times_out(idlewise_parker *parker)
{
    idlewise_wait_stats before, after;
    uint64_t timeout_ns = 1000;

    CHECK(idlewise_parker_stats(parker, &before, sizeof before) == 0);
    CHECK(before.timeouts == 0);
    CHECK(idlewise_parker_park(parker, 0) == -ETIMEDOUT);
    CHECK(idlewise_parker_stats(parker, &after, sizeof after) == 0);
    CHECK(after.timeouts == 0 && after.waits == before.waits);
    do {
        CHECK(timeout_ns < 10000000000);
        CHECK(idlewise_parker_park(parker, timeout_ns) == -ETIMEDOUT);
        CHECK(idlewise_parker_stats(parker, &after, sizeof after) == 0);
        timeout_ns *= 2;
    } while (after.timeouts == 0);
    CHECK(after.timeouts == 1 && after.waits == before.waits + 1);
}

static void round_trips(void)
{
    struct pair pair = { 0 };
    idlewise_parker *mine;
    pthread_t thread;

    CHECK(idlewise_parker_create(&pair.parker) == 0);
    CHECK(idlewise_parker_create(&mine) == 0);
    CHECK(idlewise_parker_unparker(pair.parker, &pair.unparker) == 0);
    CHECK(idlewise_parker_unparker(mine, &pair.back) == 0);
    CHECK(pthread_create(&thread, NULL, answer, &pair) == 0);
    for (int round = 1; round <= ROUNDS; round++) {
        pair.value = round;
        CHECK(idlewise_unparker_unpark(pair.unparker) == 0);
        CHECK(idlewise_parker_park(mine, IDLEWISE_FOREVER) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    times_out(mine);
    idlewise_parker_destroy(mine);
    /* An unparker outlives its parker. */
    CHECK(idlewise_unparker_unpark(pair.back) == 0);
    idlewise_unparker_release(pair.back);
    idlewise_unparker_release(pair.unparker);
    idlewise_parker_destroy(pair.parker);
}

static idlewise_parker *shared;

static void *park_shared(void *data)
{
    int outcome;

    (void)data;
    do {
        outcome = idlewise_parker_park(shared, IDLEWISE_FOREVER);
    } while (outcome == -EBUSY);
    return (void *)(intptr_t)outcome;
}

/* Two threads wait on one parker: one is refused, the other gets the token. */
static void two_waiters(void)
{
    idlewise_unparker *unparker;
    pthread_t thread;
    void *outcome;
    int mine;

    CHECK(idlewise_parker_create(&shared) == 0);
    CHECK(idlewise_parker_unparker(shared, &unparker) == 0);
    CHECK(pthread_create(&thread, NULL, park_shared, NULL) == 0);
    do {
        mine = idlewise_parker_park(shared, 1000);
    } while (mine == -ETIMEDOUT);
    CHECK(mine == -EBUSY);
    CHECK(idlewise_unparker_unpark(unparker) == 0);
    CHECK(pthread_join(thread, &outcome) == 0);
    CHECK((intptr_t)outcome == 0);
    idlewise_unparker_release(unparker);
    idlewise_parker_destroy(shared);
}

static idlewise_raw_parker raw = IDLEWISE_RAW_PARKER_INIT;

static void *ring_raw(void *data)
{
    (void)data;
    CHECK(idlewise_raw_unpark(&raw) == 0);
    return NULL;
}

static void words(void)
{
    pthread_t thread;
    uint32_t word = 1;

    CHECK(idlewise_raw_park(&raw, 1000) == -ETIMEDOUT);
    CHECK(pthread_create(&thread, NULL, ring_raw, NULL) == 0);
    CHECK(idlewise_raw_park(&raw, IDLEWISE_FOREVER) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(idlewise_word_wait(&word, 0, IDLEWISE_FOREVER) == 0);
    CHECK(idlewise_word_wait(&word, 1, 1000) == -ETIMEDOUT);
    CHECK(idlewise_word_wake_one(&word) == 0 && idlewise_word_wake_all(&word) == 0);
}

static void processes(void)
{
    idlewise_process_parker *parker =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t child;

    CHECK(parker != MAP_FAILED);
    child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(idlewise_process_unpark(parker) == 0 ? 0 : 1);
    CHECK(idlewise_process_park(parker, IDLEWISE_FOREVER) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void mistakes(void)
{
    idlewise_parker *parker;
    uint32_t words[2] = { 0 };
    uint32_t *odd = (uint32_t *)(void *)((char *)words + 1);

    CHECK(idlewise_parker_create(&parker) == 0);
    CHECK(idlewise_parker_create(NULL) == -EINVAL);
    CHECK(idlewise_parker_park(NULL, 0) == -EINVAL);
    CHECK(idlewise_parker_unparker(parker, NULL) == -EINVAL);
    CHECK(idlewise_unparker_unpark(NULL) == -EINVAL);
    CHECK(idlewise_parker_stats(parker, NULL, 8) == -EINVAL);
    CHECK(idlewise_raw_park(NULL, 0) == -EINVAL);
    CHECK(idlewise_word_wait(odd, 0, 0) == -EINVAL);
    CHECK(idlewise_word_wake_one(odd) == -EINVAL);
    idlewise_parker_destroy(parker);
    idlewise_parker_destroy(NULL);
    idlewise_unparker_release(NULL);
}

int main(void)
{
    alarm(600);
    CHECK(idlewise_park_abi() >= IDLEWISE_PARK_ABI);
    round_trips();
    two_waiters();
    words();
    processes();
    mistakes();
    puts("ok");
    return 0;
}
