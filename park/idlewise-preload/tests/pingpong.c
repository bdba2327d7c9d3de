/* Two threads take turns with a mutex and a condition variable. Prints round-trip and CPU time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn, rounds;

static void *play(void *data)
{
    int mine = data != NULL;

    for (int round = 0; round < rounds; round++) {
        pthread_mutex_lock(&lock);
        while (turn != mine)
            pthread_cond_wait(&turned, &lock);
        turn = !mine;
        pthread_cond_signal(&turned);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    struct timespec start, end;
    struct rusage usage;
    pthread_t other;
    double us, cpu_us;

    rounds = count > 1 ? atoi(arguments[1]) : 10000;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (pthread_create(&other, NULL, play, &rounds))
        return 1;
    play(NULL);
    pthread_join(other, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    getrusage(RUSAGE_SELF, &usage);
    us = (end.tv_sec - start.tv_sec) * 1e6 + (end.tv_nsec - start.tv_nsec) / 1e3;
    cpu_us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    printf("round_trip_us %.3f\ncpu_us_per_op %.3f\n", us / rounds, cpu_us / rounds);
    return 0;
}
