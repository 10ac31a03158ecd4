// What a wait costs the GPU: a row of equal kernels in one stream, with and without a wait before each. nvcc -arch=sm_90 -O2 waits.cu -lcuda
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define MUST(x) do { auto e = (x); if ((int)e) { printf("%s: %d\n", #x, (int)e); exit(1); } } while (0)

__global__ void spin(long long cycles, int *out) {
    long long t = clock64();
    while (clock64() - t < cycles);
    if (cycles < 0) *out = 1;
}

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main() {
    MUST(cudaFree(0));
    unsigned *page;
    MUST(posix_memalign((void **)&page, 4096, 4096));
    *page = 0;
    MUST(cudaHostRegister(page, 4096, cudaHostRegisterPortable | cudaHostRegisterMapped));
    CUdeviceptr host, vram;
    MUST(cuMemHostGetDevicePointer(&host, page, 0));
    MUST(cuMemAlloc(&vram, 4096));
    MUST(cuMemsetD8(vram, 0, 4096));
    cudaStream_t s, side;
    MUST(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    MUST(cudaStreamCreate(&s));
    cudaEvent_t e1, e2, m;
    for (cudaEvent_t *event : {&e1, &e2, &m}) MUST(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    const char *names[] = {"bare", "wait host EQ", "wait host GEQ", "batch wait host", "wait vram", "record", "wait host + record",
                           "side stream", "side stream, vram", "waitEvent done", "side without E1", "wait legacy"};
    for (double us : {8.0, 40.0}) {
        long long cycles = (long long)(us * 1.98e3);
        int n = us < 20 ? 1000 : 400;
        double base = 0;
        for (int way = 0; way < 12; way++) {
            std::vector<double> times, cpu;
            for (int rep = 0; rep < 7; rep++) {
                MUST(cudaDeviceSynchronize());
                cudaEvent_t a, b;
                cudaEventCreate(&a);
                cudaEventCreate(&b);
                cudaStream_t st = way == 11 ? 0 : s;
                // Launches are ahead of the GPU from the beginning.
                spin<<<1, 1, 0, st>>>(2000 * 1980LL * 2, nullptr);
                MUST(cudaEventRecord(a, st));
                double begun = now();
                for (int i = 0; i < n; i++) {
                    switch (way) {
                    case 1: case 6: case 11: MUST(cuStreamWaitValue32(st, host, 0, CU_STREAM_WAIT_VALUE_EQ)); break;
                    case 2: MUST(cuStreamWaitValue32(st, host, 0, CU_STREAM_WAIT_VALUE_GEQ)); break;
                    case 3: {
                        CUstreamBatchMemOpParams op = {};
                        op.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
                        op.waitValue.address = host;
                        op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
                        MUST(cuStreamBatchMemOp(st, 1, &op, 0));
                        break;
                    }
                    case 4: MUST(cuStreamWaitValue32(st, vram, 0, CU_STREAM_WAIT_VALUE_EQ)); break;
                    case 7: case 8:
                        MUST(cudaStreamWaitEvent(st, e2, 0));
                        MUST(cudaEventRecord(e1, st));
                        MUST(cudaStreamWaitEvent(side, e1, 0));
                        MUST(cuStreamWaitValue32(side, way == 7 ? host : vram, 0, CU_STREAM_WAIT_VALUE_EQ));
                        MUST(cudaEventRecord(e2, side));
                        break;
                    case 9: MUST(cudaStreamWaitEvent(st, m, 0)); break;
                    case 10:
                        MUST(cuStreamWaitValue32(side, host, 0, CU_STREAM_WAIT_VALUE_EQ));
                        MUST(cudaEventRecord(e2, side));
                        MUST(cudaStreamWaitEvent(st, e2, 0));
                        break;
                    }
                    spin<<<528, 256, 0, st>>>(cycles, nullptr);
                    if (way == 5 || way == 6) MUST(cudaEventRecord(m, st));
                }
                double launched = now();
                MUST(cudaEventRecord(b, st));
                MUST(cudaEventSynchronize(b));
                float ms;
                MUST(cudaEventElapsedTime(&ms, a, b));
                times.push_back(ms * 1e3 / n);
                cpu.push_back((launched - begun) * 1e6 / n);
            }
            std::sort(times.begin(), times.end());
            std::sort(cpu.begin(), cpu.end());
            if (way == 0) base = times[3];
            printf("%4.0f us  %-20s %.3f us per kernel, %+.3f; cpu %.2f us\n", us, names[way], times[3], times[3] - base, cpu[3]);
        }
    }
}
