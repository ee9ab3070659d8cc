/* Counts the edges that a program runs through in the file that NETDISSECT_COVERAGE names.
 *
 * gcc   -fsanitize-coverage=trace-pc       -c server.c && gcc   -c coverage.c && gcc   server.o coverage.o
 * clang -fsanitize-coverage=trace-pc-guard -c server.c && clang -c coverage.c && clang server.o coverage.o
 *
 * This file itself must be compiled without -fsanitize-coverage.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define OCTETS (1u << 16)

static uint8_t unheard[OCTETS];
static uint8_t *counters = unheard;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("NETDISSECT_COVERAGE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map;

    if (file < 0)
        return;
    map = mmap(NULL, OCTETS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED)
        counters = map;
    close(file);
}

/* gcc: the edge is told by the place that it was called from, from one start to the next less the
 * address at which the program was loaded. */
extern const char __executable_start;

void __sanitizer_cov_trace_pc(void)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0) - (uintptr_t)&__executable_start;

    counters[(place ^ place >> 16) % OCTETS] = 1;
}

/* clang: each edge has a number. */
void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop)
{
    static uint32_t number;

    if (start == stop || *start)
        return;
    while (start < stop)
        *start++ = ++number;
}

void __sanitizer_cov_trace_pc_guard(uint32_t *guard)
{
    if (*guard)
        counters[*guard % OCTETS] = 1;
}
