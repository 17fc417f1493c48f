/*
 * stamp FILE ID MS: the least a stand-in can be. It notes its start in FILE,
 * sleeps MS milliseconds and notes its end, each as one line
 *
 *     S|E ID nanoseconds pid
 *
 * by CLOCK_MONOTONIC, which all processes of a machine share. It is linked
 * statically, so that what is measured is the hand-over and not its loader.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int note(int fd, char kind, const char *id)
{
	struct timespec now;
	char line[256];
	int n;

	clock_gettime(CLOCK_MONOTONIC, &now);
	n = snprintf(line, sizeof line, "%c %s %lld %d\n", kind, id,
		     (long long)now.tv_sec * 1000000000 + now.tv_nsec, (int)getpid());
	return n < (int)sizeof line && write(fd, line, n) == n;
}

int main(int argc, char **argv)
{
	struct timespec life;
	long ms;
	int fd;

	if (argc != 4)
		return 2;
	fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0600);
	if (fd < 0 || !note(fd, 'S', argv[2]))
		return 1;
	ms = atol(argv[3]);
	life.tv_sec = ms / 1000;
	life.tv_nsec = ms % 1000 * 1000000;
	nanosleep(&life, NULL);
	return !note(fd, 'E', argv[2]);
}
