/*
 * relay SOCKET: the least a driver can be. It sends the offer that it finds at
 * descriptor 3 to a stream socket of that name, and ends when the other side
 * closes: whoever listens there claims in its place.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char offer[1024];
	ssize_t n;
	int fd;

	if (argc != 2 || strlen(argv[1]) >= sizeof to.sun_path)
		return 2;
	strcpy(to.sun_path, argv[1]);
	n = read(3, offer, sizeof offer);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (n <= 0 || fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) ||
	    write(fd, offer, n) != n)
		return 1;
	while (read(fd, offer, sizeof offer) > 0)
		;
	return 0;
}
