/* Host pages that the device writes to.
 *
 * The address that a process registers lies in a file that it has mapped (a ring in shared memory). The file is found
 * in /proc/self/maps and remembered by path, so that the engine, in another process, can map it too and store the value
 * at the moment at which the device reaches the write. */
#define _GNU_SOURCE
#include "machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* A path that other processes can open: the name of the file, or, when it has none any more, an open descriptor. */
static int find_path(dev_t device, ino_t inode, const char *name, char *path, size_t size) {
  struct stat status;
  if (name[0] == '/' && strlen(name) < size && stat(name, &status) == 0 && status.st_ino == inode &&
      status.st_dev == device) {
    strcpy(path, name);
    return 0;
  }
  DIR *folder = opendir("/proc/self/fd");
  if (!folder) return ENOENT;
  int result = ENOENT;
  for (struct dirent *entry; result && (entry = readdir(folder));) {
    snprintf(path, size, "/proc/%d/fd/%.20s", (int)getpid(), entry->d_name);
    if (stat(path, &status) == 0 && status.st_ino == inode && status.st_dev == device) result = 0;
  }
  closedir(folder);
  return result;
}

static int find_file(uintptr_t address, uint64_t size, char *path, size_t path_size, uint64_t *file_offset) {
  FILE *maps = fopen("/proc/self/maps", "re");
  if (!maps) return ENOENT;
  int result = ENOENT;
  char line[4500];
  while (result && fgets(line, sizeof line, maps)) {
    uint64_t start, end, offset, inode;
    unsigned major_number, minor_number;
    char shared;
    int name_at = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*3c%c %" SCNx64 " %x:%x %" SCNu64 " %n", &start, &end, &shared, &offset,
               &major_number, &minor_number, &inode, &name_at) < 7)
      continue;
    if (address < start || address + size > end || shared != 's' || inode == 0) continue;
    line[strcspn(line, "\n")] = '\0';
    *file_offset = offset + (address - start);
    result = find_path(makedev(major_number, minor_number), (ino_t)inode, line + name_at, path, path_size);
    break;
  }
  fclose(maps);
  return result;
}

/* Returns the page's number, or a negative errno: -ENOENT when the memory is not a shared mapping of a file. */
int sim_register_page(struct sim_machine *machine, const void *address, uint64_t size) {
  char path[sizeof machine->pages[0].path];
  uint64_t file_offset;
  int error = find_file((uintptr_t)address, size, path, sizeof path, &file_offset);
  if (error) return -error;
  for (int index = 0; index < SIM_NUM_PAGES; index++) {
    struct sim_page *page = &machine->pages[index];
    if (page->owner_pid && sim_is_alive(page->owner_pid)) continue;
    page->generation++;
    memcpy(page->path, path, sizeof path);
    page->file_offset = file_offset;
    page->size = size;
    page->owner_pid = (uint32_t)getpid();
    return index;
  }
  return -ENOSPC;
}

void sim_unregister_page(struct sim_machine *machine, uint32_t index) {
  machine->pages[index].generation++;
  machine->pages[index].owner_pid = 0;
}

/* What this process has mapped of others' pages. Each machine has one that delivers, but a process may own two
 * machines. */
static pthread_mutex_t mapped_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
  struct sim_machine *machine;
  uint32_t generation;
  char *start;
  size_t size;
  uint64_t skipped;
} mapped[SIM_NUM_PAGES];

static void unmap_page(uint32_t index) {
  if (mapped[index].start) munmap(mapped[index].start, mapped[index].size);
  memset(&mapped[index], 0, sizeof mapped[index]);
}

static char *map_page(struct sim_machine *machine, uint32_t index) {
  const struct sim_page *page = &machine->pages[index];
  if (mapped[index].machine == machine && mapped[index].generation == page->generation)
    return mapped[index].start ? mapped[index].start + mapped[index].skipped : NULL;
  unmap_page(index);
  mapped[index].machine = machine;
  mapped[index].generation = page->generation;
  int file = open(page->path, O_RDWR | O_CLOEXEC);
  if (file < 0) return NULL; /* the process ended meanwhile; nobody misses the write */
  struct stat status;
  uint64_t skipped = page->file_offset % (uint64_t)sysconf(_SC_PAGESIZE), size = skipped + page->size;
  if (fstat(file, &status) == 0 && (uint64_t)status.st_size >= page->file_offset + page->size) {
    char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)(page->file_offset - skipped));
    if (start != MAP_FAILED) {
      mapped[index].start = start;
      mapped[index].size = size;
      mapped[index].skipped = skipped;
    }
  }
  close(file);
  return mapped[index].start ? mapped[index].start + skipped : NULL;
}

void sim_deliver_writes(struct sim_machine *machine) {
  pthread_mutex_lock(&mapped_mutex);
  for (; machine->num_delivered != machine->num_writes; machine->num_delivered++) {
    const struct sim_write *write = &machine->writes[machine->num_delivered % SIM_NUM_WRITES];
    if (machine->pages[write->page].generation != write->generation) continue;
    char *start = map_page(machine, write->page);
    if (start) __atomic_store_n((uint32_t *)(void *)(start + write->offset), write->value, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mapped_mutex);
}

void sim_forget_pages(struct sim_machine *machine) {
  pthread_mutex_lock(&mapped_mutex);
  for (uint32_t index = 0; index < SIM_NUM_PAGES; index++)
    if (mapped[index].machine == machine) unmap_page(index);
  pthread_mutex_unlock(&mapped_mutex);
}
