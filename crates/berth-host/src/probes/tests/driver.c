// A driver library with no driver behind it: the names that are probed, and nothing they would do.
// A negative device fails, as a real driver would. Launches and allocations that are really made are counted in the file that
// BERTH_TEST_COUNTS names, for others to see while the process is stopped.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
typedef int CUresult;

static unsigned long long none[2], *counts = none;
__attribute__((constructor)) static void open_counts(void) {
    const char *path = getenv("BERTH_TEST_COUNTS");
    int file = path ? open(path, O_RDWR) : -1;
    void *shared = file < 0 ? MAP_FAILED : mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) counts = shared;
}
static void launched(void) { __atomic_add_fetch(&counts[0], 1, __ATOMIC_SEQ_CST); }
static void allocated(void) { __atomic_add_fetch(&counts[1], 1, __ATOMIC_SEQ_CST); }

CUresult cuInit(unsigned flags) { return flags != 0; }
CUresult cuCtxCreate_v2(void **context, unsigned flags, int device) {
    *context = (void *)1;
    return device < 0 ? 101 : (int)(flags & 0);
}
CUresult cuCtxDestroy_v2(void *context) { return context == 0 ? 201 : 0; }
CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = (void *)2;
    return device < 0 ? 101 : 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(int device) { return device < 0 ? 101 : 0; }
// Two names of one place, as drivers have.
CUresult cuDevicePrimaryCtxRelease(int device) __attribute__((alias("cuDevicePrimaryCtxRelease_v2")));
CUresult cuMemAlloc_v2(unsigned long long *pointer, unsigned long size) {
    *pointer = size;
    allocated();
    return 0;
}
CUresult cuMemAllocPitch_v2(unsigned long long *pointer, unsigned long *pitch, unsigned long width, unsigned long height) {
    *pointer = *pitch = width * height;
    allocated();
    return 0;
}
CUresult cuMemCreate(unsigned long long *handle, unsigned long size) {
    *handle = size + 1;
    return 0;
}
CUresult cuLaunchKernel(void *function) {
    launched();
    return function == (void *)-1;
}
CUresult cuLaunchKernelEx(void *config, void *function) {
    launched();
    return config == function && function == (void *)-1;
}
CUresult cuGraphLaunch(void *graph) {
    launched();
    return graph == (void *)-2;
}
CUresult cuStreamSynchronize(void *stream) { return stream == (void *)-1 ? 700 : 0; }
// Not ready, as long as there is such a stream.
CUresult cuStreamQuery(void *stream) { return stream == 0 ? 0 : 600; }
CUresult cuCtxSynchronize(void) { return 0; }
