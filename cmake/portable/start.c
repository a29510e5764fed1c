// SPDX-License-Identifier: Apache-2.0
//
// How a program of HAMI_PORTABLE begins on a glibc before 2.34.

// Until 2.33 the program itself ran its constructors, by a function that its start file handed to glibc; the start file
// of today hands over none, and glibc would run nothing. A new glibc calls what it is handed, too.
typedef void (*Constructor)(int, char**, char**);
extern const Constructor __init_array_start[] __attribute__((visibility("hidden")));
extern const Constructor __init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);
static void Construct(int count, char** words, char** environment) {
  _init();
  for (const Constructor* one = __init_array_start; one != __init_array_end; ++one) (*one)(count, words, environment);
}
typedef int (*Main)(int, char**, char**);
extern int __real___libc_start_main(Main, int, char**, void (*)(int, char**, char**), void (*)(void), void (*)(void),
                                    void*);
int __wrap___libc_start_main(Main main, int count, char** words, void (*init)(int, char**, char**), void (*fini)(void),
                             void (*loader_fini)(void), void* stack_end) {
  (void)init;
  return __real___libc_start_main(main, count, words, Construct, fini, loader_fini, stack_end);
}
