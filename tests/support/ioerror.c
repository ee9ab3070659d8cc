/* Makes one call on a file fail with EIO, for the tests of faults: to be loaded with LD_PRELOAD.

   IOERROR_CALL    read, write, fsync, close or rename
   IOERROR_PATH    the file, or what its path begins with
   IOERROR_AFTER   how many such calls succeed before
   IOERROR_DONE    file that is created when the call has failed
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int fails_at(const char *call, const char *path)
{
    static long before;
    const char *wanted = getenv("IOERROR_CALL"), *prefix = getenv("IOERROR_PATH");
    if (!wanted || !prefix || strcmp(call, wanted) || strncmp(path, prefix, strlen(prefix)))
        return 0;
    if (before++ != atol(getenv("IOERROR_AFTER")))
        return 0;
    NEXT(close)(open(getenv("IOERROR_DONE"), O_CREAT | O_WRONLY, 0600));
    errno = EIO;
    return 1;
}

static int fails(const char *call, int file)
{
    char link[40], path[4096];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    errno = kept;
    if (size < 0)
        return 0;
    path[size] = 0;
    return fails_at(call, path);
}

ssize_t read(int file, void *to, size_t size)
{
    return fails("read", file) ? -1 : NEXT(read)(file, to, size);
}

ssize_t write(int file, const void *from, size_t size)
{
    return fails("write", file) ? -1 : NEXT(write)(file, from, size);
}

int fsync(int file)
{
    return fails("fsync", file) ? -1 : NEXT(fsync)(file);
}

int close(int file)
{
    int failed = fails("close", file), status = NEXT(close)(file);
    if (failed)
        errno = EIO;
    return failed ? -1 : status;
}

int rename(const char *from, const char *to)
{
    return fails_at("rename", to) ? -1 : NEXT(rename)(from, to);
}
