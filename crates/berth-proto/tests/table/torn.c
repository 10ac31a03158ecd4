/* Reads a table that is being written until it has seen 2,000 different ones; exits with 1 at the first torn one.
 * The writer gives the same number to every row's task and memory and to the time of the update. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "berth_table.h"

enum { ROOM = 64, ENOUGH = 2000 };

int main(int argc, char **argv) {
  static struct berth_table_row rows[ROOM];
  struct berth_table_header header;
  struct stat file;
  int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
  if (fd < 0 || fstat(fd, &file) != 0) return perror("open"), 2;
  void *map = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED || berth_table_check(map, (size_t)file.st_size) != BERTH_TABLE_OK) return 2;

  uint64_t last = 0;
  for (int seen = 0; seen < ENOUGH;) {
    if (berth_table_read(map, &header, rows, ROOM) != BERTH_TABLE_OK || header.updated_mono_ns == last) continue;
    last = header.updated_mono_ns;
    seen++;
    if (header.row_count != 1 + last % ROOM) return fprintf(stderr, "%u rows\n", header.row_count), 1;
    for (uint32_t row = 0; row < header.row_count; row++)
      if (rows[row].task_id != last || rows[row].memory_bytes != last) return fprintf(stderr, "row %u\n", row), 1;
  }
  return 0;
}
