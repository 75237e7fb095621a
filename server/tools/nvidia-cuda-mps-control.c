// nvidia-cuda-mps-control: the command of stock MPS for scripts, built on the frmps service. Its
// verbs are those of frmpsctl (mps.h) and those of protocol 3 (mps3.h); both always work. With -f
// the process becomes the service, with -d it starts a service and waits until that is ready.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/place.h"
#include "server/tools/ask.h"
#include "server/tools/command.h"
#include "server/tools/manual.h"
#include "server/tools/mps.h"
#include "server/tools/mps3.h"
#include "server/tools/mps_config.h"
#include "server/tools/shim.h"
#include "server/version.h"

#define PROGRAM	      "nvidia-cuda-mps-control"
#define LOG_DIRECTORY "/var/log/nvidia-mps"

static const struct command rows[] = {
#define VERB(name, arguments, least, most, function, help) {name, function},
#include "server/tools/mps.def"
#include "server/tools/mps3.def"
};

static const struct commands commands = {&manual_mps, rows, sizeof(rows) / sizeof(rows[0])};

/* Stock MPS exits with 1 for any error. */
static int outcome(int code)
{
	return code ? 1 : 0;
}

/*
 * Verbs
 */

static int run(void *context, int count, char **arguments)
{
	struct call call = {.program = PROGRAM, .path = context};

	return command_run(&commands, &call, count - 1, arguments + 1);
}

/* Return: 0; -errno */
static int ping(char path[PLACE_BYTES], char *text, size_t size)
{
	int r = ask_find(NULL, path, text, size);

	return r ? r : ask_any(path, text, size);
}

/* Scripts look for the first half of this line. Return: whether there is a service */
static bool find_service(char path[PLACE_BYTES])
{
	char text[700];
	int r = ping(path, text, sizeof(text));

	if (r < 0)
		fprintf(stderr, "Cannot find MPS control daemon process: %s\n", text);
	return r >= 0;
}

/* True, after an error line, if a service runs already. */
static bool is_running(void)
{
	char path[PLACE_BYTES], text[700];

	if (ping(path, text, sizeof(text)) < 0)
		return false;
	puts("An instance of this daemon is already running");
	manual_flush(stdout);
	return true;
}

static int run_verbs(int count, char **arguments)
{
	char path[PLACE_BYTES];
	int r;

	if (!find_service(path))
		return 1;
	r = count > 1 ? run(path, count, arguments) : command_read(stdin, PROGRAM, run, path);
	return r < 0 ? 0 : outcome(r);
}

/*
 * The service
 */

/* Becomes the service, of all devices that CUDA_VISIBLE_DEVICES leaves, as stock MPS is. Return:
 * only on failure */
static int become_service(const char *server)
{
	char path[PLACE_BYTES];

	place_begin(path);
	execl(server, "frmps-server", "--socket", path, "--devices", "all", (char *)NULL);
	fprintf(stderr, PROGRAM ": %s: %s\n", server, strerror(errno));
	return 1;
}

/* Opens the log of a service in the background. @path: of the log. Return: descriptor; -1 after an
 * error line */
static int open_log(char *path, size_t size)
{
	const char *directory = getenv("CUDA_MPS_LOG_DIRECTORY");
	int fd;

	if (!directory || !*directory)
		directory = LOG_DIRECTORY;
	mkdir(directory, 0755);
	snprintf(path, size, "%s/control.log", directory);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		fprintf(stderr, PROGRAM ": %s: %s (CUDA_MPS_LOG_DIRECTORY names another directory)\n", path,
			strerror(errno));
	return fd;
}

/* The socket on which a service reports ready; its name goes into the environment. Return: -1 if
 * there is none */
static int open_notify(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t length = sizeof(address);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char name[16];

	/* The kernel finds a name that nobody has. */
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) < 0 ||
		getsockname(fd, (struct sockaddr *)&address, &length) < 0) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	snprintf(name, sizeof(name), "@%.*s", (int)(length - sizeof(sa_family_t) - 1), address.sun_path + 1);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

static bool says_ready(int fd)
{
	char text[256];
	ssize_t n;

	while ((n = recv(fd, text, sizeof(text) - 1, 0)) >= 0) {
		text[n] = '\0';
		if (strstr(text, "READY=1"))
			return true;
	}
	return false;
}

/* Waits until a service is ready or has ended. @process: pidfd. Return: exit code */
static int await(pid_t pid, int process, int notify, const char *log)
{
	struct pollfd fds[2] = {{.fd = process, .events = POLLIN}, {.fd = notify, .events = POLLIN}};
	int status;

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return 1;
		if (says_ready(notify))
			return 0;
		if (waitpid(pid, &status, WNOHANG) == pid)
			break;
	}
	if (WIFEXITED(status))
		fprintf(stderr, PROGRAM ": the service has ended with status %d; %s says why\n",
			WEXITSTATUS(status), log);
	else
		fprintf(stderr, PROGRAM ": signal %d has ended the service; its log is %s\n",
			WTERMSIG(status), log);
	return 1;
}

/* In the child: away from the terminal and from whoever reads this program's output. */
static int run_in_background(const char *server, int log)
{
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	dup2(nothing, STDIN_FILENO);
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	return become_service(server);
}

static int start_background(const char *server)
{
	char path[512];
	int log = open_log(path, sizeof(path)), notify, process;
	pid_t pid;

	if (log < 0)
		return 1;
	notify = open_notify();
	pid = notify < 0 ? -1 : fork();
	if (pid == 0)
		_exit(run_in_background(server, log));
	process = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	if (process < 0) {
		fprintf(stderr, PROGRAM ": the service cannot be started: %s\n", strerror(errno));
		return 1;
	}
	return await(pid, process, notify, path);
}

/* Ends the service. @at_once: programs get no time to finish. Return: exit code */
static int end(char *path, bool at_once)
{
	char program[] = PROGRAM, verb[] = "quit", option[] = "-t", seconds[] = "0";
	char *words[] = {program, verb, option, seconds, NULL};

	return run(path, at_once ? 4 : 2, words);
}

/* Applies a configuration; on failure the service ends. Return: exit code */
static int apply(struct mps_config *config)
{
	char path[PLACE_BYTES];
	int code;

	if (!find_service(path))
		return 1;
	code = outcome(mps_config_run(config, run, path));
	if (code)
		end(path, true);
	return code;
}

static int start(bool background)
{
	char *server = shim_find_server();
	int code;

	if (!server) {
		fputs(PROGRAM ": frmps-server is not found beside this program\n", stderr);
		return 1;
	}
	code = background ? start_background(server) : become_service(server);
	free(server);
	return code;
}

/* Return: exit code */
static int start_with(const char *file, int mode)
{
	struct mps_config *config = NULL;
	int code = 1;

	if (is_running())
		return 1;
	if (!file)
		return start(mode == 'd');
	if (mode != 'd')
		fputs(PROGRAM ": --apply needs -d\n", stderr);
	else
		config = mps_config_read(file, PROGRAM);
	if (config)
		code = start(true);
	code = code ? code : apply(config);
	mps_config_free(config);
	return code;
}

/* Ends the service. Return: exit code */
static int quit(void)
{
	char path[PLACE_BYTES];

	return find_service(path) ? outcome(end(path, false)) : 1;
}

/* Both protocols are always there. Return: true if the number is a protocol */
static bool is_protocol(const char *number)
{
	if (!strcmp(number, "2") || !strcmp(number, "3"))
		return true;
	fprintf(stderr, PROGRAM ": --protocol is 2 or 3, not '%s'\n", number);
	return false;
}

int main(int count, char **arguments)
{
	const char *file = NULL;
	bool quits = false;
	int option, mode = 0;

	while ((option = manual_option(&manual_mps, count, arguments, true)) >= 0) {
		switch (option) {
		case 'd':
		case 'f':
			mode = option;
			break;
		case 'a':
			file = optarg;
			break;
		case 'q':
			quits = true;
			break;
		case 'p':
			if (!is_protocol(optarg))
				return 1;
			break;
		case 'M':
		case 'm':
		case 'r':
		case 'S':
			break;
		case 'v':
			puts(PROGRAM " of frmps " SERVER_VERSION);
			return manual_flush(stdout);
		case 'h':
			return command_help(&commands, count - optind, arguments + optind);
		default:
			return outcome(manual_wrong(&manual_mps, NULL));
		}
	}
	if (mode || file)
		return start_with(file, mode);
	if (quits)
		return quit();
	arguments[optind - 1] = arguments[0];
	return run_verbs(count - optind + 1, arguments + optind - 1);
}
