// See service.h. Nothing here sleeps to wait for the service: readiness is a message, the log is
// followed by inotify.

#include "tests/lib/service.h"

#include <jansson.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/tools/ask.h"

static int bind_notify(struct service *service, struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(address->sun_path, sizeof(address->sun_path), "%s/notify", service->folder);
	if (fd >= 0 && bind(fd, (struct sockaddr *)address, sizeof(*address)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Copies the log to our standard error as well, if that is wanted. Return: where the service
 * writes; -1: its file. */
static int start_tee(struct service *service)
{
	const char *wanted = getenv("FRMPS_TEST_LOG");
	int ends[2];

	if (!wanted || strcmp(wanted, "1") != 0 || pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	service->tee = fork();
	if (service->tee == 0) {
		dup2(ends[0], STDIN_FILENO);
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execlp("tee", "tee", "-a", service->log, NULL);
		_exit(127);
	}
	close(ends[0]);
	return ends[1];
}

const char *service_backend(void)
{
	const char *backend = getenv("FRMPS_TEST_BACKEND");

	return backend ? backend : "host";
}

static void run_server(
	const struct service *service, const char *notify, const char *const *extra, int log_fd)
{
	const char *server = getenv("FRMPS_TEST_SERVER"), *devices = getenv("FRMPS_TEST_DEVICES");
	const char *arguments[32] = {server ? server : "frmps-server", "--config", service->config,
		"--socket", service->socket, "--backend", service_backend()};
	int count = 7, fd;

	if (devices) {
		arguments[count++] = "--devices";
		arguments[count++] = devices;
	}
	for (; extra && *extra && count < 31; extra++)
		arguments[count++] = *extra;
	/* A test that is killed leaves nobody with an endless kernel on the device. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	fd = log_fd >= 0 ? log_fd : open(service->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(fd, STDERR_FILENO);
	setenv("NOTIFY_SOCKET", notify, 1);
	execv(arguments[0], (char **)arguments);
	perror(arguments[0]);
	_exit(127);
}

/* Reads notifications until one says READY=1 or the service ends. */
static bool wait_ready(const struct service *service, int notify, int pidfd)
{
	struct pollfd wait[2] = {{.fd = notify, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
	char text[512];

	(void)service;
	while (poll(wait, 2, 60000) > 0) {
		ssize_t length = wait[0].revents ? recv(notify, text, sizeof(text) - 1, 0) : 0;

		if (length > 0) {
			text[length] = '\0';
			if (strstr(text, "READY=1"))
				return true;
		}
		if (wait[1].revents)
			return false;
	}
	return false;
}

static void print_log(const struct service *service)
{
	FILE *file = fopen(service->log, "r");
	char line[1024];

	while (file && fgets(line, sizeof(line), file))
		fputs(line, stderr);
	if (file)
		fclose(file);
}

/* Whether a line of the same section begins like this one. @key: bytes of the beginning. @from: the
 * line behind it */
static bool comes_again(const char *line, size_t key, const char *from)
{
	for (const char *later = from; later && *later && *later != '[';) {
		if (strcspn(later, " =\n") == key && !strncmp(line, later, key))
			return true;
		later = strchr(later, '\n');
		later += later != NULL;
	}
	return false;
}

/* Writes lines, each key once in a section. */
static void write_lines(FILE *file, const char *lines)
{
	for (const char *line = lines, *next; *line; line = next) {
		size_t length = strcspn(line, "\n"), key = strcspn(line, " =\n");

		next = line + length + (line[length] == '\n');
		if (!comes_again(line, key, next))
			fprintf(file, "%.*s\n", (int)length, line);
	}
}

/* With a configuration of its own: that of the machine's service is not ours. */
static bool make_folder(struct service *service, const char *config)
{
	FILE *file;

	*service = (struct service){.folder = "/tmp/frmps-test-XXXXXX"};
	if (!mkdtemp(service->folder))
		return false;
	snprintf(service->socket, sizeof(service->socket), "%s/frmps.sock", service->folder);
	snprintf(service->log, sizeof(service->log), "%s/log", service->folder);
	snprintf(service->config, sizeof(service->config), "%s/conf", service->folder);
	close(open(service->log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	file = fopen(service->config, "w");
	if (!file)
		return false;
	write_lines(file, config);
	return fclose(file) == 0;
}

struct service service_of_device(const struct service *service, unsigned number)
{
	struct service one = *service;
	char path[PLACE_BYTES];

	if (place_of_device(service->socket, number, path))
		snprintf(one.socket, sizeof(one.socket), "%.95s", path);
	return one;
}

static void choose_daemon(struct service *service)
{
	const char *number = getenv("FRMPS_TEST_DEVICE");

	if (number)
		*service = service_of_device(service, (unsigned)atoi(number));
}

static bool start(struct service *service, const char *const *extra)
{
	struct sockaddr_un address;
	int notify = bind_notify(service, &address), log_fd = start_tee(service), pidfd;
	bool ready;

	service->pid = fork();
	if (service->pid == 0)
		run_server(service, address.sun_path, extra, log_fd);
	if (log_fd >= 0)
		close(log_fd);
	pidfd = (int)syscall(SYS_pidfd_open, service->pid, 0);
	ready = notify >= 0 && pidfd >= 0 && wait_ready(service, notify, pidfd);
	close(notify);
	close(pidfd);
	setenv("FRMPS_SOCKET", service->socket, 1);
	choose_daemon(service);
	if (!ready) {
		print_log(service);
		service_stop(service);
	}
	return ready;
}

bool service_start(struct service *service, const char *const *extra)
{
	return make_folder(service, "") && start(service, extra);
}

bool service_start_configured(struct service *service, const char *text)
{
	return make_folder(service, text) && start(service, NULL);
}

static int reap(pid_t pid, int seconds)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), status = -1;
	struct pollfd wait = {.fd = pidfd, .events = POLLIN};
	bool ended = pidfd < 0 || poll(&wait, 1, seconds * 1000) == 1;

	if (!ended)
		kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(pidfd);
	return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int service_stop(struct service *service)
{
	char command[128];
	int status = -1;

	if (service->pid > 0) {
		kill(service->pid, SIGTERM);
		status = reap(service->pid, 60);
	}
	/* What it has said is in the file when whoever copies it there has ended. */
	if (service->tee > 0)
		waitpid(service->tee, NULL, 0);
	/* A bug of the daemon would be hidden by the next one. Tests kill it in other ways. */
	if (service_log_count(service, "daemon was ended by signal ") >
		service_log_count(service, "daemon was ended by signal 9 ") + service->crashes)
		status = -1;
	/* Whatever a sanitizer finds in a keeper or an executor, whose ends are nobody's
	 * failure. */
	if (service_log_count(service, "Sanitizer") || service_log_count(service, "runtime error:"))
		status = -1;
	if (status != 0)
		print_log(service);
	snprintf(command, sizeof(command), "rm -rf %s", service->folder);
	if (service->folder[0] && system(command) != 0)
		fprintf(stderr, "%s is left behind\n", service->folder);
	*service = (struct service){0};
	return status;
}

int service_log_count(const struct service *service, const char *text)
{
	FILE *file = fopen(service->log, "r");
	char line[4096];
	int count = 0;

	while (file && fgets(line, sizeof(line), file))
		count += strstr(line, text) != NULL;
	if (file)
		fclose(file);
	return count;
}

bool service_log_wait(const struct service *service, const char *text, int count, int seconds)
{
	int watch = inotify_init1(IN_CLOEXEC);
	struct pollfd wait = {.fd = watch, .events = POLLIN};
	time_t end = time(NULL) + seconds;
	char events[4096];
	bool found;

	inotify_add_watch(watch, service->log, IN_MODIFY);
	while (!(found = service_log_count(service, text) >= count) && time(NULL) < end)
		if (poll(&wait, 1, 1000) == 1 && read(watch, events, sizeof(events)) < 0)
			break;
	close(watch);
	/* The test that waits for it will hardly get to its end, where this would be printed. */
	if (!found)
		print_log(service);
	return found;
}

char *service_status(const struct service *service)
{
	char text[256], *json = NULL;

	if (ask(service->socket, "status", &json, text, sizeof(text)) == 0)
		return json;
	fprintf(stderr, "%s\n", text);
	return NULL;
}

pid_t service_active(const struct service *service)
{
	char *text = service_status(service);
	json_t *status = text ? json_loads(text, 0, NULL) : NULL, *domain, *one;
	pid_t pid = 0;
	size_t i;

	free(text);
	domain = json_array_get(json_object_get(status, "domains"), 0);
	json_array_foreach (json_object_get(domain, "executors"), i, one)
		if (!strcmp(json_string_value(json_object_get(one, "role")), "active"))
			pid = (pid_t)json_integer_value(json_object_get(one, "pid"));
	json_decref(status);
	return pid;
}

bool service_kill_active(const struct service *service)
{
	pid_t pid = service_active(service);

	return pid > 0 && kill(pid, SIGKILL) == 0;
}

int service_children(const struct service *service, pid_t *ret_pids, int room)
{
	char path[64];
	FILE *file;
	int count = 0, pid;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)service->pid, (int)service->pid);
	file = fopen(path, "r");
	while (file && count < room && fscanf(file, "%d", &pid) == 1)
		ret_pids[count++] = pid;
	if (file)
		fclose(file);
	return count;
}

/* User and system time of one process; 0 if it is gone. */
static unsigned long ticks(pid_t pid)
{
	unsigned long user = 0, system_time = 0;
	char path[64], line[1024] = "";
	const char *rest;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	/* The name in brackets may hold anything; the numbers begin behind the last one. */
	rest = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	if (rest)
		sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system_time);
	fclose(file);
	return user + system_time;
}

unsigned long service_ticks(const struct service *service)
{
	pid_t pids[65] = {service->pid};
	int count = service_children(service, pids + 1, 64) + 1;
	unsigned long sum = 0;

	for (int i = 0; i < count; i++)
		sum += ticks(pids[i]);
	return sum;
}

static bool leads_to(int folder, const char *link, const char *prefix)
{
	char target[64];
	ssize_t length = readlinkat(folder, link, target, sizeof(target) - 1);

	target[length < 0 ? 0 : length] = '\0';
	return !strncmp(target, prefix, strlen(prefix));
}

/* Of a process. @prefix: NULL, or of what the links lead to that count */
static int count_entries(pid_t pid, const char *what, const char *prefix)
{
	char path[64];
	struct dirent *entry;
	DIR *folder;
	int count = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		count += !prefix || leads_to(dirfd(folder), entry->d_name, prefix);
	if (folder)
		closedir(folder);
	return count;
}

int service_count_fds(pid_t pid)
{
	return count_entries(pid, "fd", NULL);
}

int service_count_chunks(const struct service *service)
{
	const char *chunk = "/memfd:frmps-chunk";
	pid_t pids[65] = {service->pid};
	int count = service_children(service, pids + 1, 64) + 1, sum = 0;

	for (int i = 0; i < count; i++)
		sum += count_entries(pids[i], "fd", chunk) + count_entries(pids[i], "map_files", chunk);
	return sum;
}

void service_footprint(const struct service *service, int *ret_fds, int *ret_threads)
{
	pid_t pids[65] = {service->pid};
	int count = service_children(service, pids + 1, 64) + 1;

	*ret_fds = *ret_threads = 0;
	for (int i = 0; i < count; i++) {
		*ret_fds += count_entries(pids[i], "fd", NULL);
		*ret_threads += count_entries(pids[i], "task", NULL);
	}
}
