/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that is wrong: preloaded into a process (LD_PRELOAD), it adds WEIR_CLOCK_SKEW, in whole seconds, to what the process
   reads as the time of day. With WEIR_CLOCK_RATE, a whole number, it runs so many times as fast from its first reading on. With
   WEIR_CLOCK_FILE it adds the seconds in this file, a number of 8 bytes, which a test may change at any time. The monotonic clock stays
   as it is. It asks the kernel, not the C library, because allocators read the
   clock before the library has found its own functions. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000L

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? strtol(text, NULL, 10) : otherwise;
}

/* Those of the file, or 0. */
static const volatile long *moved(void) {
  static const long unmoved;
  const char *path = getenv("WEIR_CLOCK_FILE");
  void *file = path ? mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, open(path, O_RDONLY), 0) : MAP_FAILED;
  return file == MAP_FAILED ? &unmoved : file;
}

static void change(struct timespec *now) {
  static long known, skew, rate, begin;
  static const volatile long *more;
  long time = now->tv_sec * SECOND + now->tv_nsec;
  if (!__atomic_load_n(&known, __ATOMIC_ACQUIRE)) {
    /* Threads that come here together read the same, but for a moment in `begin`. */
    skew = number("WEIR_CLOCK_SKEW", 0);
    rate = number("WEIR_CLOCK_RATE", 1);
    begin = time;
    more = moved();
    __atomic_store_n(&known, 1, __ATOMIC_RELEASE);
  }
  time = begin + (time - begin) * rate + (skew + *more) * SECOND;
  now->tv_sec = time / SECOND;
  now->tv_nsec = time % SECOND;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) change(now);
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  int result = clock_gettime(CLOCK_REALTIME, &exact);
  (void)zone;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return result;
}

time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
