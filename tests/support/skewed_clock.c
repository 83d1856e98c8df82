/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that is wrong: preloaded into a process (LD_PRELOAD), it adds WEIR_CLOCK_SKEW, in whole seconds, to what the process
   reads as the time of day. The monotonic clock stays as it is. It asks the kernel, not the C library, because allocators read the
   clock before the library has found its own functions. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long skew(void) {
  static long known, seconds;
  if (!known) {
    const char *text = getenv("WEIR_CLOCK_SKEW");
    if (!text) return 0;
    seconds = strtol(text, NULL, 10);
    known = 1;
  }
  return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += skew();
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
