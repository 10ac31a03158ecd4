// tenant LIBRARY: loads it and does what each line of standard input says, answering with the line
// "BEFORE AFTER CPU": CLOCK_MONOTONIC nanoseconds around the first call, and the nanoseconds of processor time that all
// repetitions took, in the kernel too.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static void *driver;
static unsigned long long out;

static unsigned long long nanos(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static unsigned long long now(void) { return nanos(CLOCK_MONOTONIC); }
static unsigned long long used(void) { return nanos(CLOCK_THREAD_CPUTIME_ID); }

static void call(const char *name, long first, long second, long third) {
    int (*function)(long, long, long) = (int (*)(long, long, long))dlsym(driver, name);
    function(first, second, third);
}

static void repeat(const char *name, long first, long second, long times) {
    int (*function)(long, long, long) = (int (*)(long, long, long))dlsym(driver, name);
    unsigned long long began = used(), before = now(), after;
    function(first, second, 0);
    after = now();
    for (long i = 1; i < times; i++) function(first, second, 0);
    printf("%llu %llu %llu\n", before, after, used() - began);
}

// As a program that has something to do between launches: some 2 µs, the least a real launch takes.
static void pace(long times) {
    int (*launch)(long) = (int (*)(long))dlsym(driver, "cuLaunchKernel");
    unsigned long long began = used(), before = now(), after = 0;
    for (long i = 0; i < times; i++) {
        launch(0);
        if (i == 0) after = now();
        for (volatile int work = 0; work < 7000; work++) {}
    }
    printf("%llu %llu %llu\n", before, after, used() - began);
}

static void *launch_in_thread(void *unused) {
    repeat("cuLaunchKernel", 0, 0, 1);
    return unused;
}

static void *launch_for_ever(void *unused) {
    int (*launch)(long) = (int (*)(long))dlsym(driver, "cuLaunchKernel");
    for (;;) launch(0);
    return unused;
}

static void storm(long threads) {
    pthread_t t;
    for (long i = 0; i < threads; i++) pthread_create(&t, NULL, launch_for_ever, NULL);
    printf("0 0 0\n");
}

static void pitch(long width, long height) {
    int (*function)(void *, void *, long, long) = (int (*)(void *, void *, long, long))dlsym(driver, "cuMemAllocPitch_v2");
    function(&out, &out, width, height);
    printf("0 0 0\n");
}

// Dies by any system call that the kernel makes up for probes, as in a container with a strict filter.
static void confine(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 335, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 424, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    printf("0 0 0\n");
}

int main(int argc, char **argv) {
    char word[64];
    long times;
    driver = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (scanf("%63s %ld", word, &times) == 2) {
        if (!strcmp(word, "init")) repeat("cuInit", 0, 0, times);
        else if (!strcmp(word, "create")) repeat("cuCtxCreate_v2", (long)&out, 0, times);
        else if (!strcmp(word, "retain")) repeat("cuDevicePrimaryCtxRetain", (long)&out, 0, times);
        else if (!strcmp(word, "fail")) { call("cuCtxCreate_v2", (long)&out, 0, -1); repeat("cuDevicePrimaryCtxRetain", (long)&out, -1, times); }
        else if (!strcmp(word, "destroy")) repeat("cuCtxDestroy_v2", 1, 0, times);
        else if (!strcmp(word, "release")) repeat("cuDevicePrimaryCtxRelease", 0, 0, times);
        else if (!strcmp(word, "allocate")) repeat("cuMemAlloc_v2", (long)&out, 4096, times);
        else if (!strcmp(word, "reserve")) repeat("cuMemCreate", (long)&out, 4096, times);
        else if (!strcmp(word, "launch")) repeat("cuLaunchKernel", 0, 0, times);
        else if (!strcmp(word, "pace")) pace(times);
        else if (!strcmp(word, "take")) repeat("cuMemAlloc_v2", (long)&out, times, 1);
        else if (!strcmp(word, "pitch")) pitch(1024, times);
        else if (!strcmp(word, "extended")) repeat("cuLaunchKernelEx", 0, 0, times);
        else if (!strcmp(word, "wait")) repeat("cuStreamSynchronize", 0, 0, times);
        else if (!strcmp(word, "broken")) repeat("cuStreamSynchronize", -1, 0, times);
        else if (!strcmp(word, "ask")) repeat("cuStreamQuery", 0, 0, times);
        else if (!strcmp(word, "asktoosoon")) repeat("cuStreamQuery", 1, 0, times);
        else if (!strcmp(word, "finish")) repeat("cuCtxSynchronize", 0, 0, times);
        else if (!strcmp(word, "storm")) storm(times);
        else if (!strcmp(word, "graph")) repeat("cuGraphLaunch", 0, 0, times);
        else if (!strcmp(word, "confine")) confine();
        else if (!strcmp(word, "thread")) { pthread_t t; pthread_create(&t, NULL, launch_in_thread, NULL); pthread_join(t, NULL); }
        else return fprintf(stderr, "what is %s?\n", word), 2;
    }
    return 0;
}
