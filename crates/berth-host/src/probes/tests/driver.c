// A driver library with no driver behind it: the names that are probed, and nothing they would do.
// A negative device fails, as a real driver would.
typedef int CUresult;

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
    return 0;
}
CUresult cuMemCreate(unsigned long long *handle, unsigned long size) {
    *handle = size + 1;
    return 0;
}
CUresult cuLaunchKernel(void *function) { return function == (void *)-1; }
CUresult cuGraphLaunch(void *graph) { return graph == (void *)-2; }
