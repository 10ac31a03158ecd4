/* Functions that old C libraries have under other names or not at all; linked into libberth_shim.so by scripts/shim.sh. */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>
#define HIDDEN __attribute__((visibility("hidden")))

/* Until 2.33. */
struct stat64;
int __fxstat64(int version, int fd, struct stat64 *out);
int __xstat64(int version, const char *path, struct stat64 *out);
HIDDEN int fstat64(int fd, struct stat64 *out) { return __fxstat64(1, fd, out); }
HIDDEN int stat64(const char *path, struct stat64 *out) { return __xstat64(1, path, out); }

/* Until 2.35: the unwinder of newer compilers asks for the object that code is in, of which it uses the frame table alone. */
struct found { unsigned long long flags; void *start, *end; struct link_map *map; void *eh_frame; unsigned long long reserved[7]; };
struct search { ElfW(Addr) code; struct found *found; };

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    struct search *search = data;
    int is_here = 0;
    ElfW(Addr) eh_frame = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && search->code >= start && search->code - start < part->p_memsz) {
            is_here = 1;
            search->found->start = (void *)start;
            search->found->end = (void *)(start + part->p_memsz);
        }
        if (part->p_type == PT_GNU_EH_FRAME)
            eh_frame = start;
    }
    search->found->eh_frame = (void *)eh_frame;
    return is_here && eh_frame;
}

HIDDEN int _dl_find_object(void *code, struct dl_find_object *result) {
    struct search search = { (ElfW(Addr))code, (struct found *)result };
    search.found->flags = 0;
    search.found->map = NULL;
    return dl_iterate_phdr(look, &search) ? 0 : -1;
}
