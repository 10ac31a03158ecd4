/* A program on the driver API that does what it is told on its standard input and answers each line with one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef int (*launch_t)(u64, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, u64, void **, void **);
typedef int (*proc2_t)(const char *, void **, int, u64, int *);
typedef int (*proc1_t)(const char *, void **, int, u64);
extern int cuLaunchKernel(u64, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, u64, void **, void **) __attribute__((weak));

static void *library;
static launch_t launch;
static u64 streams[4096], graph, addresses[64], pools[64], count;
struct config { unsigned grid[3], block[3], shared; u64 stream; void *attributes; unsigned count; };

static void *f(const char *name) { void *found = dlsym(library, name); if (!found) { printf("no %s\n", name); exit(3); } return found; }
#define CALL(name, types, ...) ((int (*) types)f(#name))(__VA_ARGS__)
static u64 stream(const char *which) { return *which == 's' ? streams[atoi(which + 1)] : strtoull(which, 0, 0); }

static int prepare(int device) {
    u64 context;
    int told = CALL(cuInit, (unsigned), 0);
    if (!told) told = CALL(cuDevicePrimaryCtxRetain, (u64 *, int), &context, device);
    return told ? told : CALL(cuCtxSetCurrent, (u64), context);
}
static void find(const char *way, int version, u64 flags) {
    if (!strcmp(way, "linked")) launch = cuLaunchKernel;
    if (!strcmp(way, "dlsym")) launch = f("cuLaunchKernel");
    if (!strcmp(way, "default")) launch = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    if (!strcmp(way, "twin")) launch = f("cuLaunchKernel_ptsz");
    if (!strcmp(way, "proc1")) ((proc1_t)f("cuGetProcAddress"))("cuLaunchKernel", (void **)&launch, version, flags);
    if (!strcmp(way, "proc2")) ((proc2_t)f("cuGetProcAddress_v2"))("cuLaunchKernel", (void **)&launch, version, flags, 0);
    if (!strcmp(way, "proc2_ptsz")) ((proc2_t)f("cuGetProcAddress_v2_ptsz"))("cuLaunchKernel", (void **)&launch, version, flags, 0);
    if (!strcmp(way, "proc3")) { proc2_t next; ((proc2_t)f("cuGetProcAddress_v2"))("cuGetProcAddress", (void **)&next, version, flags, 0); next("cuLaunchKernel", (void **)&launch, version, flags, 0); }
}
static unsigned blocks = 8;
static int go(u64 function, u64 s) { return launch(function, blocks, 1, 1, 256, 1, 1, 0, s, 0, 0); }
static struct { u64 ns, stream; int told; pthread_t thread; } aside;
static void *launch_aside(void *unused) { u64 context = 0x1000; CALL(cuCtxSetCurrent, (u64), context); aside.told = go(aside.ns, aside.stream); return 0; }
static pthread_barrier_t barrier;
static void *launch_together(void *which) { u64 context = 0x1000; CALL(cuCtxSetCurrent, (u64), context); pthread_barrier_wait(&barrier); return (void *)(u64)go(1000, (u64)which); }
static int together(u64 which) { pthread_t t[4]; void *told; int bad = 0; pthread_barrier_init(&barrier, 0, 4); for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, launch_together, (void *)which); for (int i = 0; i < 4; i++) { pthread_join(t[i], &told); bad |= told != 0; } return bad; }
static void *hold(void *ms) { ((void (*)(unsigned))f("fakeHold"))((unsigned)(u64)ms); return 0; }
static void *allocate_later(void *bytes) { u64 context = 0x1000; usleep(20000); CALL(cuCtxSetCurrent, (u64), context); return (void *)(long)CALL(cuMemAlloc_v2, (u64 *, size_t), &addresses[1], *(u64 *)bytes); }
static int turns;
static void *allocate_on(void *bytes) { u64 context = 0x1001; CALL(cuCtxSetCurrent, (u64), context); pthread_barrier_wait(&barrier); int i = __sync_fetch_and_add(&turns, 1); if (i) usleep(3000); return (void *)(long)CALL(cuMemAlloc_v2, (u64 *, size_t), &addresses[10 + i], i ? 500ull << 20 : *(u64 *)bytes); }
static void *last(void *unused) { sleep(1); _exit(0); }
static void *elsewhere(void *ns) { u64 context = 0x1000; CALL(cuCtxSetCurrent, (u64), context); return (void *)(u64)go(*(u64 *)ns, 2); }

int main(int argc, char **argv) {
    char line[256], command[32], a[64], b[64], c[64];
    int early = dlsym(RTLD_DEFAULT, "cuLaunchKernel") != 0;
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 2; }
    launch = f("cuLaunchKernel");
    setlinebuf(stdout);
    while (fgets(line, sizeof line, stdin)) {
        *a = *b = *c = 0;
        sscanf(line, "%31s %63s %63s %63s", command, a, b, c);
        errno = 77;
        long told = -1;
        #define IS(name) !strcmp(command, name)
        if (IS("prepare")) told = prepare(atoi(a));
        else if (IS("find")) { launch = 0; find(a, atoi(b), strtoull(c, 0, 0)); told = launch != 0; }
        else if (IS("launch")) { told = 0; for (int i = 0; i < atoi(c) && !told; i++) told = go(strtoull(b, 0, 0), stream(a)); }
        /* Picoseconds that each of so many launches takes, past the library if that is wanted. */
        else if (IS("time")) { launch_t of = atoi(c) ? ((launch_t (*)(void))f("fakeLaunch"))() : launch; u64 s = stream(a), n = strtoull(b, 0, 0); struct timespec t, u; clock_gettime(CLOCK_MONOTONIC, &t); for (u64 i = 0; i < n; i++) of(1000, 8, 1, 1, 256, 1, 1, 0, s, 0, 0); clock_gettime(CLOCK_MONOTONIC, &u); told = ((u.tv_sec - t.tv_sec) * 1000000000l + u.tv_nsec - t.tv_nsec) * 1000 / (long)n; }
        else if (IS("launchlast")) { told = go(strtoull(b, 0, 0), stream(a)); if (!told) told = CALL(cuStreamDestroy_v2, (u64), stream(a)); }
        else if (IS("launchex")) { struct config config = { { 4, 1, 1 }, { 64, 1, 1 }, 0, stream(a), 0, 0 }; told = CALL(cuLaunchKernelEx, (struct config *, u64, void **, void **), &config, strtoull(b, 0, 0), 0, 0); }
        else if (IS("newer")) { void *found; ((proc2_t)f("cuGetProcAddress_v2"))("cuLaunchKernelEx", &found, atoi(a), 0, 0); Dl_info info; dladdr(found, &info); told = !strstr(info.dli_fname, "berth_shim"); }
        else if (IS("cooperative")) told = CALL(cuLaunchCooperativeKernel, (u64, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, u64, void **), strtoull(b, 0, 0), 1, 1, 1, 32, 1, 1, 0, stream(a), 0);
        else if (IS("thread")) { u64 ns = strtoull(a, 0, 0); pthread_t t; void *result; pthread_create(&t, 0, elsewhere, &ns); pthread_join(t, &result); told = (long)result; }
        else if (IS("streams")) { told = 0; for (int i = 0; i < atoi(a) && !told; i++) told = CALL(cuStreamCreate, (u64 *, unsigned), &streams[i], 1); count = atoi(a); }
        else if (IS("launchall")) { told = 0; for (u64 i = 0; i < count && !told; i++) told = go(strtoull(a, 0, 0), streams[i]); }
        else if (IS("syncall")) { told = 0; for (u64 i = 0; i < count && !told; i++) told = CALL(cuStreamSynchronize, (u64), streams[i]); }
        else if (IS("destroyall")) { told = 0; for (u64 i = 0; i < count && !told; i++) told = CALL(cuStreamDestroy_v2, (u64), streams[i]); count = 0; }
        else if (IS("sync")) told = CALL(cuStreamSynchronize, (u64), stream(a));
        else if (IS("syncctx")) told = CALL(cuCtxSynchronize, (void));
        else if (IS("query")) told = CALL(cuStreamQuery, (u64), stream(a));
        else if (IS("copy")) told = CALL(cuMemcpyHtoDAsync_v2, (u64, const void *, size_t, u64), 0, 0, strtoull(b, 0, 0), stream(a));
        else if (IS("capture")) told = CALL(cuStreamBeginCapture_v2, (u64, int), stream(a), 0);
        else if (IS("endcapture")) told = CALL(cuStreamEndCapture, (u64, u64 *), stream(a), &graph);
        else if (IS("badend")) told = CALL(cuStreamEndCapture, (u64, u64 *), stream(a), 0);
        /* Has one stream wait for what another captures. */
        else if (IS("joins")) { u64 event; ((void (*)(int))f("fakeByProgram"))(1); told = CALL(cuEventCreate, (u64 *, unsigned), &event, 2) || CALL(cuEventRecord, (u64, u64), event, stream(b)) || CALL(cuStreamWaitEvent, (u64, u64, unsigned), stream(a), event, 0); ((void (*)(int))f("fakeByProgram"))(0); }
        else if (IS("graph")) told = CALL(cuGraphLaunch, (u64, u64), graph, stream(a));
        else if (IS("alloc")) told = CALL(cuMemAlloc_v2, (u64 *, size_t), &addresses[atoi(a)], strtoull(b, 0, 0));
        else if (IS("allocasync")) told = CALL(cuMemAllocAsync, (u64 *, size_t, u64), &addresses[atoi(a)], strtoull(b, 0, 0), stream(c));
        /* Of pool 0, the device's own, or another that is made. */
        else if (IS("pool")) { int properties[32] = { 1, 0, 1, 0 }; told = CALL(cuMemPoolCreate, (u64 *, const void *), &pools[atoi(a)], properties); }
        else if (IS("poolon")) { int properties[32] = { 1, 0, atoi(c), atoi(b) }; told = CALL(cuMemPoolCreate, (u64 *, const void *), &pools[atoi(a)], properties); }
        else if (IS("poolof")) told = CALL(cuDeviceGetDefaultMemPool, (u64 *, int), &pools[atoi(a)], atoi(b));
        else if (IS("keep")) { u64 bytes = strtoull(b, 0, 0); if (!atoi(a)) CALL(cuDeviceGetDefaultMemPool, (u64 *, int), &pools[0], 0); told = CALL(cuMemPoolSetAttribute, (u64, int, void *), pools[atoi(a)], 4, &bytes); }
        else if (IS("trim")) told = CALL(cuMemPoolTrimTo, (u64, size_t), pools[atoi(a)], 0);
        else if (IS("nopool")) told = CALL(cuMemPoolDestroy, (u64), pools[atoi(a)]);
        else if (IS("allocpool")) told = CALL(cuMemAllocFromPoolAsync, (u64 *, size_t, u64, u64), &addresses[atoi(a)], strtoull(b, 0, 0), pools[atoi(c)], 0);
        else if (IS("freeasync")) told = CALL(cuMemFreeAsync, (u64, u64), addresses[atoi(a)], 0);
        else if (IS("array")) { struct { size_t width, height; int format; unsigned channels; } wanted = { strtoull(b, 0, 0), 1024, 0x20, 4 }; told = CALL(cuArrayCreate_v2, (u64 *, const void *), &addresses[atoi(a)], &wanted); }
        else if (IS("mipmap")) { struct { size_t width, height, depth; int format; unsigned channels, flags; } wanted = { strtoull(b, 0, 0), 1024, 0, 0x20, 4, 0 }; told = CALL(cuMipmappedArrayCreate, (u64 *, const void *, unsigned), &addresses[atoi(a)], &wanted, 2); }
        else if (IS("noarray")) told = CALL(cuArrayDestroy, (u64), addresses[atoi(a)]);
        else if (IS("nomipmap")) told = CALL(cuMipmappedArrayDestroy, (u64), addresses[atoi(a)]);
        else if (IS("create")) { int properties[8] = { 1, 0, 1, 0 }; told = CALL(cuMemCreate, (u64 *, size_t, void *, unsigned long long), &addresses[atoi(a)], strtoull(b, 0, 0), properties, 0); }
        /* Another thread allocates a moment later. */
        else if (IS("alloctwo")) { u64 bytes = strtoull(a, 0, 0); pthread_t t; void *other; pthread_create(&t, 0, allocate_later, &bytes); told = CALL(cuMemAlloc_v2, (u64 *, size_t), &addresses[0], bytes); pthread_join(t, &other); told |= (long)other; }
        /* Two threads in a GPU's context, of which the second allocates more than there is. */
        else if (IS("alloctwoon")) { u64 bytes = strtoull(b, 0, 0); pthread_t t[2]; void *other; told = 0; pthread_barrier_init(&barrier, 0, 2); turns = 0; for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, allocate_on, &bytes); for (int i = 0; i < 2; i++) { pthread_join(t[i], &other); told |= (long)other; } }
        else if (IS("free")) told = CALL(cuMemFree_v2, (u64), addresses[atoi(a)]);
        else if (IS("release")) told = CALL(cuMemRelease, (u64), addresses[atoi(a)]);
        else if (IS("freemem")) { size_t all, total; CALL(cuMemGetInfo_v2, (size_t *, size_t *), &all, &total); told = all >> 20; }
        else if (IS("totalmem")) { size_t all, total; CALL(cuMemGetInfo_v2, (size_t *, size_t *), &all, &total); told = total >> 20; }
        else if (IS("device")) { u64 context; CALL(cuDevicePrimaryCtxRetain, (u64 *, int), &context, atoi(a)); told = CALL(cuCtxSetCurrent, (u64), context); }
        else if (IS("context")) told = CALL(cuCtxSetCurrent, (u64), 0x1100 + atoi(a));
        else if (IS("nocontext")) told = CALL(cuCtxDestroy_v2, (u64), 0x1100 + atoi(a));
        else if (IS("calls")) told = CALL(fakeCalls, (const char *), a);
        else if (IS("done")) told = CALL(fakeKernelsDone, (void));
        else if (IS("green")) told = CALL(fakeGreenKernels, (void));
        else if (IS("disturbed")) told = CALL(fakeDisturbed, (void));
        else if (IS("next")) told = CALL(fakeNextIsNone, (void));
        else if (IS("together")) { told = 0; for (u64 i = 0; i < count && !told; i++) told = together(streams[i]); }
        else if (IS("blocks")) { blocks = atoi(a); told = 0; }
        else if (IS("aside")) { aside.stream = stream(a); aside.ns = strtoull(b, 0, 0); told = pthread_create(&aside.thread, 0, launch_aside, 0); }
        else if (IS("join")) { pthread_join(aside.thread, 0); told = aside.told; }
        else if (IS("hold")) { pthread_t t; told = pthread_create(&t, 0, hold, (void *)strtoull(a, 0, 0)); pthread_detach(t); usleep(20000); }
        else if (IS("primary")) told = CALL(cuDevicePrimaryCtxRelease_v2, (int), atoi(a));
        else if (IS("destroy")) told = CALL(cuStreamDestroy_v2, (u64), stream(a));
        else if (IS("dtod")) told = CALL(cuMemcpyDtoDAsync_v2, (u64, u64, size_t, u64), 0, 0, strtoull(b, 0, 0), stream(a));
        else if (IS("within")) told = CALL(cuMemcpyAsync, (u64, u64, size_t, u64), addresses[0], addresses[0], strtoull(b, 0, 0), stream(a));
        else if (IS("upload")) told = CALL(cuMemcpyAsync, (u64, u64, size_t, u64), addresses[0], (u64)line, strtoull(b, 0, 0), stream(a));
        else if (IS("copynow")) told = CALL(cuMemcpyHtoD_v2, (u64, const void *, size_t), 0, 0, strtoull(a, 0, 0));
        else if (IS("fillnow")) told = CALL(cuMemsetD8_v2, (u64, unsigned char, size_t), addresses[0], 0, strtoull(a, 0, 0));
        else if (IS("leave")) { pthread_t t; pthread_create(&t, 0, last, 0); pthread_exit(0); }
        else if (IS("_exit")) _exit(0);
        else if (IS("abort")) abort();
        else if (IS("closeall")) { told = 0; for (int fd = 3; fd < 4096; fd++) close(fd); errno = 77; }
        else if (IS("early")) told = early;
        /* A child of a process of which another thread is attaching. */
        else if (IS("forkattaching")) { u64 bytes = 4096; pthread_t t; pthread_create(&t, 0, allocate_later, &bytes); usleep(100000); pid_t child = fork(); if (!child) { alarm(20); u64 a; _exit(CALL(cuMemAlloc_v2, (u64 *, size_t), &a, 4096)); } int status; waitpid(child, &status, 0); pthread_join(t, 0); told = status; errno = 77; }
        else if (IS("fork")) { pid_t child = fork(); if (!child) { prepare(0); u64 s; CALL(cuStreamCreate, (u64 *, unsigned), &s, 1); int bad = go(1000, s) || CALL(cuStreamSynchronize, (u64), s); sleep(atoi(a)); _exit(bad); } int status; if (atoi(a)) { told = child; } else { waitpid(child, &status, 0); told = status; } }
        printf("%ld %d\n", told, IS("fork") ? 77 : errno);
    }
    return 0;
}
