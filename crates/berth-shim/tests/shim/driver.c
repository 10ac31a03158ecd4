/* A driver for tests: streams are threads that work off their queue, a kernel is a sleep as long as its function's handle says.
 * Every call is counted. What a capture must not see, it notes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t u64;
typedef int result;
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600 };

/* --- counting --- */
#define SYMBOLS 256
static struct { const char *name; u64 calls; } counts[SYMBOLS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void count(const char *name) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SYMBOLS; i++) {
        if (!counts[i].name) counts[i].name = name;
        if (!strcmp(counts[i].name, name)) { counts[i].calls++; break; }
    }
    pthread_mutex_unlock(&lock);
}
#define COUNT count(__func__)
u64 fakeCalls(const char *name) {
    for (int i = 0; i < SYMBOLS && counts[i].name; i++)
        if (!strcmp(counts[i].name, name)) return counts[i].calls;
    return 0;
}

/* --- streams --- */
enum kind { KERNEL, WAIT_ZERO, WRITE_ZERO, RECORD, WAIT_EVENT, END };
struct event { u64 recorded, done; double done_ms; int captured; };
struct op { enum kind kind; u64 ns; volatile uint32_t *word; struct event *event; u64 number; struct op *next; };
struct stream { struct op *first, *last; u64 queued, finished; int capturing, origin, green; u64 captured_ns; u64 kernels; u64 context; pthread_cond_t moved; };
/* Those that a wait for a context waits for; never freed. */
static struct stream *kept[256]; static unsigned kept_count;
static int disturbed, initialized, devices = 2, captures;
/* What a thread may do while another captures, and that it is the program that calls. */
static __thread int mode;
static __thread int by_program;
/* Calls that need a context. */
static __thread u64 stack[8];
static __thread int depth;
#define IN_CONTEXT if (!depth || !stack[depth - 1]) return INVALID_CONTEXT
/* Calls that a capture forbids to whoever has not asked for more. */
#define UNSAFE if (captures && mode != 2) disturbed++
static u64 kernels_done, green_kernels;
static struct stream *legacy;
static __thread struct stream *own;

static double now_ms(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec / 1e6; }
static void happen(struct op *op) { if (op->event->done < op->number) op->event->done = op->number; op->event->done_ms = now_ms(); }
static void *work(void *argument) {
    struct stream *s = argument;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!s->first) pthread_cond_wait(&s->moved, &lock);
        struct op *op = s->first;
        pthread_mutex_unlock(&lock);
        struct timespec nap = { 0, 20000 };
        if (op->kind == KERNEL && op->ns) { struct timespec t = { op->ns / 1000000000, op->ns % 1000000000 }; nanosleep(&t, 0); }
        /* Less often in the end: thousands of them would leave no time for others. */
        if (op->kind == WAIT_ZERO) while (__atomic_load_n(op->word, __ATOMIC_SEQ_CST)) { nanosleep(&nap, 0); if (nap.tv_nsec < (kept_count < 256 ? 5000000 : 100000000)) nap.tv_nsec += nap.tv_nsec / 4; }
        nap.tv_nsec = 20000;
        if (op->kind == WRITE_ZERO) __atomic_store_n(op->word, 0, __ATOMIC_SEQ_CST);
        if (op->kind == WAIT_EVENT) for (;;) { pthread_mutex_lock(&lock); int done = op->event->done >= op->number; pthread_mutex_unlock(&lock); if (done) break; nanosleep(&nap, 0); }
        pthread_mutex_lock(&lock);
        if (op->kind == KERNEL) { s->kernels++; kernels_done++; if (s->green) green_kernels++; }
        /* Events behind it are done with it, as on a GPU: whoever has waited for it finds nothing of them left. */
        int end;
        do {
            op = s->first;
            if (op->kind == RECORD) happen(op);
            s->first = op->next; if (!s->first) s->last = 0;
            s->finished++;
            end = op->kind == END;
            free(op);
        } while (s->first && s->first->kind == RECORD);
        pthread_cond_broadcast(&s->moved);
        pthread_mutex_unlock(&lock);
        if (end) return 0;
    }
}
static struct stream *make(void) {
    struct stream *s = calloc(1, sizeof *s); pthread_t thread; pthread_attr_t small;
    pthread_cond_init(&s->moved, 0);
    s->context = depth ? stack[depth - 1] : 0;
    pthread_attr_init(&small); pthread_attr_setstacksize(&small, 65536);
    if (pthread_create(&thread, &small, work, s)) abort();
    pthread_detach(thread);
    pthread_mutex_lock(&lock); if (kept_count < 256) kept[kept_count++] = s; pthread_mutex_unlock(&lock);
    return s;
}
static struct stream *find(u64 handle, int per_thread) {
    if (handle == 2 || (handle == 0 && per_thread)) { if (!own) own = make(); return own; }
    if (handle > 2) return (struct stream *)handle;
    if (!legacy) legacy = make();
    return legacy;
}
static result put(struct stream *s, struct op op) {
    if (s->capturing) { if (op.kind != KERNEL && !by_program) disturbed++; s->captured_ns += op.ns; return OK; }
    pthread_mutex_lock(&lock);
    /* With nothing before it an event is done at once: on a busy machine a thread may be a long time coming, and there are thousands. */
    if (op.kind == RECORD && !s->first) { happen(&op); pthread_mutex_unlock(&lock); return OK; }
    struct op *new = malloc(sizeof *new); *new = op; new->next = 0;
    if (s->last) s->last->next = new; else s->first = new;
    s->last = new; s->queued++;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&lock);
    return OK;
}
u64 fakeKernelsDone(void) { pthread_mutex_lock(&lock); u64 n = kernels_done; pthread_mutex_unlock(&lock); return n; }
u64 fakeGreenKernels(void) { pthread_mutex_lock(&lock); u64 n = green_kernels; pthread_mutex_unlock(&lock); return n; }
int fakeDisturbed(void) { return disturbed; }

/* Nothing of a parent's threads is in its child. */
static void child(void) { pthread_mutex_init(&lock, 0); legacy = own = 0; }
__attribute__((constructor)) static void watch_fork(void) { pthread_atfork(0, 0, child); }
int fakeNextIsNone(void) { return dlsym(RTLD_NEXT, "fakeNextIsNone") == 0; }

/* --- driver, devices, contexts: a primary context's handle is 0x1000 + device, another's 0x1100 + device --- */
result cuInit(unsigned flags) { COUNT; initialized = 1; return OK; }
result cuDriverGetVersion(int *out) { *out = 13000; return OK; }
result cuDeviceGetCount(int *out) { if (!initialized) return NOT_INITIALIZED; *out = devices; return OK; }
result cuDeviceGet(int *out, int i) { *out = i; return OK; }
result cuDeviceGetUuid(unsigned char *out, int device) { memset(out, 0x10 + device, 16); return OK; }
result cuDeviceGetAttribute(int *out, int attribute, int device) {
    const char *no_waits = getenv("FAKE_NO_WAITS");
    *out = attribute == 16 ? 132 : attribute == 92 || attribute == 122 || attribute == 123 ? !no_waits : 0; return OK; }
static int shares[16];
result cuDevicePrimaryCtxRetain(u64 *out, int device) { pthread_mutex_lock(&lock); shares[device]++; pthread_mutex_unlock(&lock); *out = 0x1000 + device; return OK; }
result cuDevicePrimaryCtxRelease_v2(int device) { COUNT; pthread_mutex_lock(&lock); int had = shares[device]; if (had) shares[device]--; pthread_mutex_unlock(&lock); return had ? OK : INVALID_CONTEXT; }
result cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = shares[device] > 0; return OK; }
result cuCtxSetCurrent(u64 context) { depth = 1; stack[0] = context; return OK; }
result cuCtxGetCurrent(u64 *out) { *out = depth ? stack[depth - 1] : 0; return OK; }
result cuCtxPushCurrent_v2(u64 context) { stack[depth++] = context; return OK; }
result cuCtxPopCurrent_v2(u64 *out) { if (!depth) return INVALID_CONTEXT; *out = stack[--depth]; return OK; }
result cuCtxGetDevice(int *out) { if (!depth || !stack[depth - 1]) return INVALID_CONTEXT; *out = stack[depth - 1] & 0xff; return OK; }
/* Captures go with it. */
result cuCtxDestroy_v2(u64 context) { COUNT; for (unsigned i = 0; i < kept_count; i++) if (kept[i]->context == context) { captures -= kept[i]->origin != 0; kept[i]->capturing = kept[i]->origin = 0; } return OK; }

/* --- streams and events --- */
result cuStreamCreate(u64 *out, unsigned flags) { IN_CONTEXT; *out = (u64)make(); return OK; }
result cuStreamDestroy_v2(u64 s) { COUNT; put(find(s, 0), (struct op){ .kind = END }); return OK; }
/* Long enough for others to come. */
result cuStreamGetCtx(u64 s, u64 *out) { struct timespec t = { 0, 200000 }; if (getenv("FAKE_SLOW_CONTEXT")) nanosleep(&t, 0); *out = find(s, 0)->context; return OK; }
static result synchronize(struct stream *s) { pthread_mutex_lock(&lock); u64 until = s->queued; while (s->finished < until) pthread_cond_wait(&s->moved, &lock); pthread_mutex_unlock(&lock); return OK; }
result cuCtxSynchronize(void) { COUNT; for (unsigned i = 0; i < kept_count; i++) if (kept[i]->context == stack[depth - 1]) synchronize(kept[i]); return OK; }
result cuStreamSynchronize(u64 s) { COUNT; return synchronize(find(s, 0)); }
result cuStreamSynchronize_ptsz(u64 s) { COUNT; return synchronize(find(s, 1)); }
result cuStreamQuery(u64 s) { struct stream *it = find(s, 0); pthread_mutex_lock(&lock); int busy = it->finished < it->queued; pthread_mutex_unlock(&lock); return busy ? NOT_READY : OK; }
result cuEventCreate(u64 *out, unsigned flags) { IN_CONTEXT; COUNT; *out = (u64)calloc(1, sizeof(struct event)); return OK; }
result cuEventDestroy_v2(u64 e) { IN_CONTEXT; COUNT; return OK; }
result cuEventRecord(u64 e, u64 s) { IN_CONTEXT; COUNT; struct event *event = (void *)e; event->captured = find(s, 0)->capturing; pthread_mutex_lock(&lock); u64 number = ++event->recorded; pthread_mutex_unlock(&lock); return put(find(s, 0), (struct op){ .kind = RECORD, .event = event, .number = number }); }
result cuEventQuery(u64 e) { IN_CONTEXT; COUNT; UNSAFE; struct event *event = (void *)e; pthread_mutex_lock(&lock); int done = event->done >= event->recorded; pthread_mutex_unlock(&lock); return done ? OK : NOT_READY; }
result cuEventElapsedTime(float *out, u64 a, u64 b) { IN_CONTEXT; *out = ((struct event *)b)->done_ms - ((struct event *)a)->done_ms; return OK; }
result cuStreamWaitEvent(u64 s, u64 e, unsigned flags) { COUNT; struct event *event = (void *)e; if (event->captured) { find(s, 0)->capturing = event->captured; return OK; } return put(find(s, 0), (struct op){ .kind = WAIT_EVENT, .event = event, .number = event->recorded }); }
result cuStreamWaitValue32_v2(u64 s, u64 address, uint32_t value, unsigned flags) { COUNT; if (value || flags != 1) return INVALID; return put(find(s, 0), (struct op){ .kind = WAIT_ZERO, .word = (void *)address }); }
struct wait { unsigned operation; u64 address, value; unsigned flags; u64 alias, pad; };
result cuStreamBatchMemOp_v2(u64 s, unsigned n, struct wait *ops, unsigned flags) { COUNT; for (unsigned i = 0; i < n; i++) { if (ops[i].operation != 1 || ops[i].value || ops[i].flags != 1) return INVALID; put(find(s, 0), (struct op){ .kind = WAIT_ZERO, .word = (void *)ops[i].address }); } return OK; }
result cuStreamWriteValue32_v2(u64 s, u64 address, uint32_t value, unsigned flags) { IN_CONTEXT; COUNT; if (value || flags) return INVALID; return put(find(s, 0), (struct op){ .kind = WRITE_ZERO, .word = (void *)address }); }
/* A call that holds what all others need, as one that synchronises may. */
void fakeHold(unsigned ms) { pthread_mutex_lock(&lock); struct timespec t = { ms / 1000, ms % 1000 * 1000000 }; nanosleep(&t, 0); pthread_mutex_unlock(&lock); }
result cuMemHostRegister_v2(void *p, size_t n, unsigned flags) { IN_CONTEXT; COUNT; UNSAFE; return flags == 3 ? OK : INVALID; }
/* May wait for all streams, as the driver may. */
static result synchronize(struct stream *s);
result cuMemHostUnregister(void *p) { IN_CONTEXT; COUNT; UNSAFE; if (getenv("FAKE_UNREGISTER_WAITS")) for (unsigned i = 0; i < kept_count; i++) synchronize(kept[i]); return OK; }
result cuMemHostGetDevicePointer_v2(u64 *out, void *p, unsigned flags) { IN_CONTEXT; *out = (u64)p; return OK; }
result cuThreadExchangeStreamCaptureMode(int *new) { int old = mode; mode = *new; *new = old; return OK; }
void fakeByProgram(int is) { by_program = is; }

/* --- capture and graphs --- */
result cuStreamBeginCapture_v2(u64 s, int mode) { COUNT; static int last; struct stream *it = find(s, 0); it->capturing = it->origin = ++last; it->captured_ns = 0; captures++; return OK; }
/* Its answer may be old when it comes. */
result cuStreamIsCapturing(u64 s, int *out) { COUNT; *out = find(s, 0)->capturing; struct timespec t = { 0, 200000 }; if (getenv("FAKE_SLOW_CAPTURES")) nanosleep(&t, 0); return OK; }
/* Streams that have joined it are done with it, too, and cannot end it. */
result cuStreamEndCapture(u64 s, u64 *graph) { COUNT; struct stream *it = find(s, 0); if (!graph) return INVALID; if (!it->capturing) return 401; if (!it->origin) return 903; int which = it->capturing; *graph = it->captured_ns; it->origin = 0; captures--; for (unsigned i = 0; i < kept_count; i++) if (kept[i]->capturing == which) kept[i]->capturing = 0; return OK; }
result cuGraphLaunch(u64 graph, u64 s) { COUNT; return put(find(s, 0), (struct op){ .kind = KERNEL, .ns = graph }); }

/* --- launches --- */
result cuLaunchKernel(u64, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, u64, void **, void **);
void *fakeLaunch(void) { return cuLaunchKernel; }
static result launch(u64 f, struct stream *s) { return put(s, (struct op){ .kind = KERNEL, .ns = f }); }
#define SHAPE unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned shared
/* For those who measure what a launch costs before it gets here. */
static int does_nothing;
__attribute__((constructor)) static void look_whether_to_work(void) { does_nothing = getenv("FAKE_DOES_NOTHING") != 0; }
result cuLaunchKernel(u64 f, SHAPE, u64 s, void **p, void **x) { if (does_nothing) return OK; COUNT; return launch(f, find(s, 0)); }
result cuLaunchKernel_ptsz(u64 f, SHAPE, u64 s, void **p, void **x) { COUNT; return launch(f, find(s, 1)); }
result cuLaunchCooperativeKernel(u64 f, SHAPE, u64 s, void **p) { COUNT; return launch(f, find(s, 0)); }
struct config { unsigned grid[3], block[3], shared; u64 stream; void *attributes; unsigned count; };
result cuLaunchKernelEx(const struct config *c, u64 f, void **p, void **x) { COUNT; return c ? launch(f, find(c->stream, 0)) : INVALID; }
result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, u64 f, int threads, size_t shared) { COUNT; *out = 2048 / threads; return OK; }
result cuPointerGetAttribute(unsigned *out, int attribute, u64 address) { *out = 2; return address >> 40 == 0x70 ? OK : INVALID; }
static result copied(struct stream *s) { put(s, (struct op){ .kind = KERNEL }); return OK; }
result cuMemcpyAsync(u64 to, u64 from, size_t n, u64 s) { COUNT; return copied(find(s, 0)); }
result cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t n, u64 s) { COUNT; return copied(find(s, 0)); }
result cuMemcpyHtoD_v2(u64 to, const void *from, size_t n) { COUNT; copied(find(0, 0)); return synchronize(find(0, 0)); }
result cuMemsetD8_v2(u64 to, unsigned char value, size_t n) { COUNT; return copied(find(0, 0)); }
result cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t n, u64 s) { COUNT; return put(find(s, 0), (struct op){ .kind = KERNEL }); }

/* --- memory --- */
static u64 next_address = 0x700000000000;
result cuMemAlloc_v2(u64 *out, size_t n) { COUNT; if (n > (1ull << 36)) return OUT_OF_MEMORY; *out = next_address; next_address += n + 4096; return OK; }
result cuMemFree_v2(u64 p) { COUNT; return OK; }
/* Pools: a device's own is that of its number. What is freed stays in one up to its threshold. */
static struct pool { u64 reserved, used, threshold; } device_pools[2];
static struct { u64 address, bytes; struct pool *pool; } pooled[64];
static void settle(struct pool *pool) { u64 least = pool->used > pool->threshold ? pool->used : pool->threshold; if (pool->reserved > least) pool->reserved = least; }
result cuDeviceGetDefaultMemPool(u64 *out, int device) { *out = (u64)&device_pools[device]; return OK; }
result cuDeviceGetMemPool(u64 *out, int device) { *out = (u64)&device_pools[device]; return OK; }
result cuMemPoolCreate(u64 *out, const void *properties) { *out = (u64)calloc(1, sizeof(struct pool)); return OK; }
result cuMemPoolDestroy(u64 pool) { COUNT; ((struct pool *)pool)->reserved = 0; return OK; }
result cuMemPoolSetAttribute(u64 pool, int attribute, void *value) { if (attribute != 4) return INVALID; ((struct pool *)pool)->threshold = *(u64 *)value; settle((void *)pool); return OK; }
result cuMemPoolGetAttribute(u64 pool, int attribute, void *value) { COUNT; struct pool *it = (void *)pool; *(u64 *)value = attribute == 5 ? it->reserved : attribute == 7 ? it->used : it->threshold; return OK; }
result cuMemPoolTrimTo(u64 pool, size_t keep) { COUNT; UNSAFE; struct pool *it = (void *)pool; u64 least = it->used > keep ? it->used : keep; if (it->reserved > least) it->reserved = least; return OK; }
result cuMemAllocFromPoolAsync(u64 *out, size_t n, u64 pool, u64 s) { COUNT; struct pool *it = (void *)pool; *out = next_address; next_address += n + 4096; it->used += n; if (it->reserved < it->used) it->reserved = it->used; for (int i = 0; i < 64; i++) if (!pooled[i].bytes) { pooled[i].address = *out; pooled[i].bytes = n; pooled[i].pool = it; break; } return OK; }
result cuMemAllocAsync(u64 *out, size_t n, u64 s) { COUNT; if (find(s, 0)->capturing) { *out = next_address; next_address += n + 4096; return OK; } return cuMemAllocFromPoolAsync(out, n, (u64)&device_pools[stack[depth - 1] & 0xff], s); }
result cuMemFreeAsync(u64 p, u64 s) { COUNT; for (int i = 0; i < 64; i++) if (pooled[i].bytes && pooled[i].address == p) { pooled[i].pool->used -= pooled[i].bytes; settle(pooled[i].pool); pooled[i].bytes = 0; } return OK; }
/* Arrays are kept on the host's side. */
result cuArrayCreate_v2(u64 *out, const void *wanted) { COUNT; *out = (u64)malloc(1); return OK; }
result cuMipmappedArrayCreate(u64 *out, const void *wanted, unsigned levels) { COUNT; *out = (u64)malloc(1); return OK; }
result cuArrayDestroy(u64 array) { COUNT; free((void *)array); return OK; }
result cuMipmappedArrayDestroy(u64 array) { COUNT; free((void *)array); return OK; }
result cuMemCreate(u64 *out, size_t n, void *properties, unsigned long long flags) { COUNT; *out = next_address; next_address += n + 4096; return OK; }
result cuMemRelease(u64 handle) { COUNT; return OK; }
result cuMemGetInfo_v2(size_t *free, size_t *total) { COUNT; *free = 70ull << 30; *total = 80ull << 30; return OK; }

/* --- green contexts --- */
result cuDeviceGetDevResource(int device, void *out, int type) { memset(out, 0, 144); return OK; }
result cuDevSmResourceSplitByCount(void *out, unsigned *groups, const void *in, void *rest, unsigned flags, unsigned sms) { if (sms > 128) return INVALID; *groups = 1; return OK; }
result cuDevResourceGenerateDesc(u64 *out, void *resources, unsigned n) { *out = 7; return OK; }
/* Takes its time, and disturbs what is captured then. */
result cuGreenCtxCreate(u64 *out, u64 description, int device, unsigned flags) { COUNT; struct timespec t = { 0, 400000000 }; if (getenv("FAKE_SLOW_GREEN")) nanosleep(&t, 0); if (captures) disturbed++; *out = 9; return OK; }
result cuGreenCtxDestroy(u64 green) { COUNT; return OK; }
result cuGreenCtxStreamCreate(u64 *out, u64 green, unsigned flags, int priority) { COUNT; struct stream *s = make(); s->green = 1; *out = (u64)s; return OK; }

/* --- finding functions: newest ABI first --- */
result cuFakeLaunchKernelEx_v2(void) { COUNT; return OK; }
result cuGetProcAddress(const char *name, void **out, int version, u64 flags);
result cuGetProcAddress_v2(const char *name, void **out, int version, u64 flags, int *status);
result cuGetProcAddress_v2_ptsz(const char *name, void **out, int version, u64 flags, int *status);
static const struct { const char *name; void *function; int since; void *twin; } known[] = {
    { "cuInit", cuInit, 2000, 0 }, { "cuLaunchKernel", cuLaunchKernel, 4000, cuLaunchKernel_ptsz },
    /* A driver newer than any list: another ABI under the same name. */
    { "cuLaunchKernelEx", cuFakeLaunchKernelEx_v2, 13010, 0 }, { "cuLaunchKernelEx", cuLaunchKernelEx, 11060, 0 },
    { "cuStreamSynchronize", cuStreamSynchronize, 2000, cuStreamSynchronize_ptsz }, { "cuMemAlloc", cuMemAlloc_v2, 3020, 0 },
    { "cuGetProcAddress", cuGetProcAddress_v2, 12000, cuGetProcAddress_v2_ptsz }, { "cuGetProcAddress", cuGetProcAddress, 11030, 0 },
};
static result proc(const char *name, void **out, int version, u64 flags, int *status) {
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name) && known[i].since <= version) {
            *out = flags & 2 && known[i].twin ? known[i].twin : known[i].function;
            if (status) *status = 0;
            return OK;
        }
    *out = 0;
    if (status) *status = 1;
    return NOT_FOUND;
}
result cuGetProcAddress(const char *name, void **out, int version, u64 flags) { return proc(name, out, version, flags, 0); }
result cuGetProcAddress_v2(const char *name, void **out, int version, u64 flags, int *status) { return proc(name, out, version, flags, status); }
result cuGetProcAddress_v2_ptsz(const char *name, void **out, int version, u64 flags, int *status) { return proc(name, out, version, flags ? flags : 2, status); }
