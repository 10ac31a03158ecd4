/* Prints berth's task table: GPU, memory in MiB, core use, state, deadline and what is left of it in seconds, deadlines met of
 * those that were judged, name; `-` is unknown, or none.
 *
 *   cc -I include -o read examples/table/read.c && ./read /run/berth/tasks
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "berth_table.h"

enum { ROOM = 256, ATTEMPTS = 1000 };

static const char *const results[] = {"", "is being written, or its writer died there", "is no task table",
                                      "has another major version", "is cut short", "is damaged"};
static const char *const states[] = {"-", "opening", "loaded", "computing", "idle", "lost"};

static void print_number(int known, uint64_t number) {
  if (known)
    printf("%" PRIu64 "\t", number);
  else
    printf("-\t");
}

static uint64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void print_seconds(int known, double nanoseconds) {
  if (known)
    printf("%.3f\t", nanoseconds / 1e9);
  else
    printf("-\t");
}

static void print_deadline(const struct berth_table_row *row) {
  print_seconds(row->flags & BERTH_ROW_HAS_DEADLINE, (double)row->deadline_ns);
  print_seconds(row->flags & BERTH_ROW_HAS_DUE, (double)berth_row_float_ns(row, monotonic_ns()));
  if (row->flags & BERTH_ROW_HAS_DEADLINE)
    printf("%" PRIu32 "/%" PRIu32 "\t", row->hits, row->hits + row->misses);
  else
    printf("-\t");
}

static void print_row(const struct berth_table_row *row) {
  print_number(row->flags & BERTH_ROW_HAS_GPU_INDEX, row->gpu_index);
  print_number(row->flags & BERTH_ROW_HAS_MEMORY, row->memory_bytes >> 20);
  print_number(row->flags & BERTH_ROW_HAS_CORE_PCT, row->core_pct);
  printf("%s\t", row->state < sizeof states / sizeof *states ? states[row->state] : "-");
  print_deadline(row);
  printf("%.*s\n", (int)sizeof row->name, row->name);
}

/* Whether the writer has left, or is dead or stuck: its rows say nothing about now. */
static int is_abandoned(const struct berth_table_header *header) {
  uint64_t now_ns = monotonic_ns();
  uint64_t beat_ns = header->heartbeat_mono_ns; /* later than now: from before a reboot */
  uint64_t silent_ns = now_ns > beat_ns ? now_ns - beat_ns : beat_ns - now_ns;
  return header->closed != 0 || silent_ns > 5 * header->heartbeat_interval_ns;
}

int main(int argc, char **argv) {
  static struct berth_table_row rows[ROOM];
  struct berth_table_header header;
  struct stat file;
  const char *path = argc > 1 ? argv[1] : "/run/berth/tasks";
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &file) != 0) return perror(path), 1;
  if (file.st_size == 0) return fprintf(stderr, "%s is empty\n", path), 1;
  void *map = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return perror(path), 1;

  enum berth_table_result result = berth_table_check(map, (size_t)file.st_size);
  if (result == BERTH_TABLE_OK) {
    result = BERTH_TABLE_BUSY;
    for (int attempt = 0; attempt < ATTEMPTS && result == BERTH_TABLE_BUSY; attempt++)
      result = berth_table_read(map, &header, rows, ROOM);
  }
  if (result != BERTH_TABLE_OK) return fprintf(stderr, "%s %s\n", path, results[result]), 1;
  if (is_abandoned(&header)) return fprintf(stderr, "nobody keeps %s up to date any more\n", path), 1;

  for (uint32_t row = 0; row < header.row_count && row < ROOM; row++) print_row(&rows[row]);
  return 0;
}
