/* berth's task table: which container is on which GPU, in one file of shared memory.
 *
 * Layout 1.1, described in docs/task-table.md. Little-endian hosts; C11 or C++11 with GCC's or clang's atomics.
 * Map the file read-only and shared, then: berth_table_check once, berth_table_read as often as you like.
 * Reading never holds up the daemon. Whoever may write to the file is trusted: one that is cut short while mapped is a
 * SIGBUS. The daemon never does that (it makes a new file and moves it into place). Use pread for files of strangers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BERTH_TABLE_H
#define BERTH_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#define BERTH_TABLE_ASSERT(condition) static_assert(condition, #condition)
#else
#define BERTH_TABLE_ASSERT(condition) _Static_assert(condition, #condition)
#endif

#define BERTH_TABLE_MAGIC "BERTHTBL"
#define BERTH_TABLE_VERSION_MAJOR 1 /* refuse any other */
#define BERTH_TABLE_VERSION_MINOR 1 /* later ones only add */
#define BERTH_TABLE_PIDS 16

/* Header flags: which fields of the header hold something. */
#define BERTH_TABLE_HAS_START_TICKS (1u << 0)
#define BERTH_TABLE_HAS_BOOT_ID (1u << 1)
#define BERTH_TABLE_HAS_PID_NAMESPACE (1u << 2)

/* Row flags: which fields of the row hold something. A field whose flag is not set is unknown, whatever is in it. */
#define BERTH_ROW_HAS_CONTAINER_ID (1u << 0)
#define BERTH_ROW_HAS_OWNER (1u << 1)
#define BERTH_ROW_HAS_GPU_INDEX (1u << 2)
#define BERTH_ROW_HAS_GPU_UUID (1u << 3)
#define BERTH_ROW_HAS_MEMORY (1u << 4)
#define BERTH_ROW_HAS_CORE_PCT (1u << 5)
#define BERTH_ROW_HAS_TASK_ID (1u << 6)
#define BERTH_ROW_HAS_TASK_STARTED (1u << 7)
#define BERTH_ROW_HAS_UID (1u << 8)
#define BERTH_ROW_HAS_DEADLINE (1u << 9)    /* deadline_ns, unit, hits, misses, unknown; since 1.1, as all below */
#define BERTH_ROW_HAS_DUE (1u << 10)        /* due_mono_ns, risk: some work is under way */
#define BERTH_ROW_HAS_LAST_FLOAT (1u << 11) /* last_float_ns */
#define BERTH_ROW_TEXT_CUT (1u << 16) /* some text was longer than its field */

/* Codes. Expect others from later versions. */
enum { BERTH_TENANT_CONTAINER = 1, BERTH_TENANT_CGROUP = 2, BERTH_TENANT_USER = 3 };
enum {
  BERTH_RUNTIME_UNKNOWN = 0,
  BERTH_RUNTIME_DOCKER = 1,
  BERTH_RUNTIME_PODMAN = 2,
  BERTH_RUNTIME_CONTAINERD = 3,
  BERTH_RUNTIME_CRIO = 4,
  BERTH_RUNTIME_LXC = 5
};
enum {
  BERTH_STATE_OPENING = 1,
  BERTH_STATE_LOADED = 2,
  BERTH_STATE_COMPUTING = 3,
  BERTH_STATE_IDLE = 4,
  BERTH_STATE_LOST = 5
};
enum { BERTH_UNIT_TASK = 1, BERTH_UNIT_BURST = 2 };
enum { BERTH_RISK_SAFE = 1, BERTH_RISK_TIGHT = 2, BERTH_RISK_LIKELY = 3, BERTH_RISK_LATE = 4 };
#define BERTH_PROCESS_COMPUTE (1u << 0)
#define BERTH_PROCESS_GRAPHICS (1u << 1)
#define BERTH_PROCESS_MPS_SERVER (1u << 2)
#define BERTH_PROCESS_MPS_CLIENT (1u << 3)

struct berth_table_header {
  /* Fixed while the file lives. */
  char magic[8];
  uint16_t version_major;
  uint16_t version_minor;
  uint32_t header_bytes; /* where the rows begin */
  uint32_t row_bytes;    /* from one row to the next */
  uint32_t row_capacity;
  uint32_t writer_pid;
  uint32_t flags;
  uint64_t writer_start_ticks; /* field 22 of /proc/PID/stat */
  uint64_t boot_id_hash;       /* FNV-1a of /proc/sys/kernel/random/boot_id, without the line feed */
  uint64_t writer_pid_namespace; /* inode of /proc/PID/ns/pid */
  uint64_t created_mono_ns;
  /* Single words, each atomic by itself. */
  uint64_t sequence; /* odd while the part below is being changed; the low half is a futex */
  uint64_t heartbeat_mono_ns;
  uint64_t closed; /* not 0: the writer has left */
  uint64_t heartbeat_interval_ns;
  uint64_t reserved_words[4];
  /* From here to the end of the rows: valid only if `sequence` was even and the same before and after copying. */
  uint32_t row_count;
  uint32_t rows_left_out;
  uint64_t updated_mono_ns;
  uint64_t updated_wall_ns;
  uint64_t reserved[5];
};

struct berth_table_row {
  uint32_t flags;
  uint8_t tenant_kind;
  uint8_t runtime;
  uint8_t state;
  uint8_t core_pct;
  uint32_t gpu_index;
  uint32_t pid_count; /* all processes; `pids` has the first BERTH_TABLE_PIDS */
  uint64_t memory_bytes;
  uint64_t task_id;
  uint64_t task_started_mono_ns;
  uint64_t task_started_wall_ns;
  uint32_t uid;
  uint32_t process_kinds;
  uint32_t pids[BERTH_TABLE_PIDS];
  /* Text: UTF-8, padded with NUL; text that fills its field has no NUL at its end. */
  char container_id[80];
  char name[64];
  char owner[32];
  char gpu_uuid[48];
  /* Since 1.1; before, no flag of these was set. */
  uint64_t deadline_ns;  /* how long a unit of its work may take */
  uint64_t due_mono_ns;  /* when the work under way is due; it began deadline_ns before */
  int64_t last_float_ns; /* what was left in the last unit that was seen to end; below 0 it was late */
  uint32_t hits;
  uint32_t misses;
  uint32_t unknown; /* nobody saw whether they were in time */
  uint8_t unit;
  uint8_t risk;
  uint8_t reserved[2];
};

BERTH_TABLE_ASSERT(sizeof(struct berth_table_header) == 192);
BERTH_TABLE_ASSERT(sizeof(struct berth_table_row) == 384);
BERTH_TABLE_ASSERT(offsetof(struct berth_table_header, sequence) == 64);
BERTH_TABLE_ASSERT(offsetof(struct berth_table_header, row_count) == 128);

enum berth_table_result {
  BERTH_TABLE_OK = 0,
  BERTH_TABLE_BUSY,      /* the writer was at it: try again, but not for ever, it may have died there */
  BERTH_TABLE_FOREIGN,   /* no task table */
  BERTH_TABLE_VERSION,   /* a task table of another major version */
  BERTH_TABLE_TRUNCATED, /* shorter than its header says */
  BERTH_TABLE_DAMAGED    /* sizes or counts that cannot be */
};

/* Whether the `bytes` mapped at `map` are a table that this header describes. */
static inline enum berth_table_result berth_table_check(const void *map, size_t bytes) {
  struct berth_table_header header;
  if (bytes < sizeof header) return BERTH_TABLE_FOREIGN;
  memcpy(&header, map, offsetof(struct berth_table_header, sequence));
  if (memcmp(header.magic, BERTH_TABLE_MAGIC, sizeof header.magic) != 0) return BERTH_TABLE_FOREIGN;
  if (header.version_major != BERTH_TABLE_VERSION_MAJOR) return BERTH_TABLE_VERSION;
  if (header.header_bytes < sizeof header || header.row_bytes < sizeof(struct berth_table_row) ||
      header.header_bytes % 8 != 0 || header.row_bytes % 8 != 0 || header.header_bytes > 4096 ||
      header.row_bytes > 4096)
    return BERTH_TABLE_DAMAGED;
  if (bytes < header.header_bytes + (uint64_t)header.row_bytes * header.row_capacity) return BERTH_TABLE_TRUNCATED;
  return BERTH_TABLE_OK;
}

/* A word of the header that changes: sequence, heartbeat_mono_ns or closed. */
static inline uint64_t berth_table_word(const void *map, size_t offset) {
  return __atomic_load_n((const uint64_t *)(const void *)((const char *)map + offset), __ATOMIC_RELAXED);
}

static inline void berth_table_copy(void *to, const void *from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = berth_table_word(from, at);
    memcpy((char *)to + at, &word, sizeof word);
  }
}

/* What is left until the work under way of a row with BERTH_ROW_HAS_DUE is due, at `now_ns` of CLOCK_MONOTONIC; below 0 it is late. */
static inline int64_t berth_row_float_ns(const struct berth_table_row *row, uint64_t now_ns) {
  return row->due_mono_ns >= now_ns ? (int64_t)(row->due_mono_ns - now_ns) : -(int64_t)(now_ns - row->due_mono_ns);
}

/* One attempt to copy out the header and the first `room` rows of a table that berth_table_check approved.
 * On BERTH_TABLE_OK `header->row_count` says how many rows there are, which may be more than `room`. */
static inline enum berth_table_result berth_table_read(const void *map, struct berth_table_header *header,
                                                       struct berth_table_row *rows, uint32_t room) {
  const size_t sequence = offsetof(struct berth_table_header, sequence);
  const uint64_t before = berth_table_word(map, sequence);
  if (before % 2 != 0) return BERTH_TABLE_BUSY;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  berth_table_copy(header, map, sizeof *header);
  uint32_t count = header->row_count; /* may be torn: not beyond the table, nor beyond `rows` */
  if (count > header->row_capacity) count = header->row_capacity;
  if (count > room) count = room;
  for (uint32_t row = 0; row < count; row++)
    berth_table_copy(&rows[row], (const char *)map + header->header_bytes + (size_t)row * header->row_bytes,
                     sizeof rows[row]);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (berth_table_word(map, sequence) != before) return BERTH_TABLE_BUSY;
  return header->row_count > header->row_capacity ? BERTH_TABLE_DAMAGED : BERTH_TABLE_OK;
}

#endif
