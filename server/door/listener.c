// The listening socket. See listener.h. A lock file beside the socket separates two services that
// start at the same moment: only the service that has the lock may replace a stale socket.
//
// If somebody removes the socket, a timer notices that and makes the socket again.
//
// A program for which there is no descriptor stays on the socket, which stays readable: the daemon
// turns the program away with a descriptor that is reserved for that. Without even that descriptor
// the daemon does not listen until a descriptor is free again.

#include "server/door/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/discard.h"
#include "server/loop/timer.h"
#include "server/loop/watch.h"
#include "server/session/daemon.h"
#include "server/session/userlog.h"

#define BACKLOG	     128
#define ACCEPT_BURST 32
/* Between two looks for a descriptor to spare, and for the socket's name. */
#define SPARE_MS 100u
#define NAME_MS	 1000u

struct listener {
	struct daemon *daemon;
	struct watch *watch;
	int socket; /* the watch's */
	int lock;
	int spare; /* closed for a moment to turn programs away when descriptors have run out; -1: lost */
	struct timer *timer;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct stat status; /* of the path, to recognise the socket */
	/* the socket was removed, and the log says that it cannot be made again */
	bool is_missed;
	uint32_t socket_key, lock_key;
};

static int fail(char *text, size_t size, const char *path, const char *what)
{
	snprintf(text, size, "socket %s: %s", path, what);
	return LISTENER_E_PATH;
}

static int make_directory(const char *path, char *text, size_t size)
{
	char copy[sizeof(((struct sockaddr_un *)0)->sun_path)], what[160];
	char *directory;

	snprintf(copy, sizeof(copy), "%s", path);
	directory = dirname(copy);
	if (mkdir(directory, 0755) == 0)
		return chmod(directory, 0755) < 0 ? -errno : 0;
	if (errno == EEXIST)
		return 0;
	snprintf(what, sizeof(what), "cannot make the directory: %s", strerror(errno));
	return fail(text, size, path, what);
}

/* True if the file still has this name: the previous owner of the lock may have removed the file at
 * its end. */
static bool is_named(int fd, const char *name)
{
	struct stat file, named;

	return fstat(fd, &file) == 0 && lstat(name, &named) == 0 && file.st_ino == named.st_ino &&
	       file.st_dev == named.st_dev;
}

/* Names the process that has the socket, and the remedy. @fd: the lock, which that process has
 * signed */
static void say_user(int fd, char *what, size_t size)
{
	char process[32] = "";

	if (pread(fd, process, sizeof(process) - 1, 0) < 0)
		*process = '\0';
	snprintf(what, size,
		"in use by another frmps service (process %d); end it (frmpsctl quit), or choose another "
		"path with --socket",
		atoi(process));
}

/* Signs with the holder's pid: the holder lives as long as the service. */
static void sign(int fd)
{
	char process[32];
	int length = snprintf(process, sizeof(process), "%d\n", (int)getppid());

	/* Without the signature, another service reports process 0. */
	if (ftruncate(fd, 0) == 0 && pwrite(fd, process, (size_t)length, 0) < 0)
		log_warning("cannot write into the lock of the socket: %s", strerror(errno));
}

static int take_lock(const char *path, int *ret_fd, char *text, size_t size)
{
	char name[256], what[160];
	int fd;

	snprintf(name, sizeof(name), "%s.lock", path);
	for (;;) {
		fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0) {
			snprintf(what, sizeof(what), "cannot write to its directory: %s", strerror(errno));
			return fail(text, size, path, what);
		}
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			say_user(fd, what, sizeof(what));
			close(fd);
			return fail(text, size, path, what);
		}
		if (is_named(fd, name))
			break;
		close(fd);
	}
	sign(fd);
	*ret_fd = fd;
	return 0;
}

static int make_address(const char *path, struct sockaddr_un *address, char *text, size_t size)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (!*path || strlen(path) >= sizeof(address->sun_path))
		return fail(text, size, path, "the path is empty or too long for a socket");
	strcpy(address->sun_path, path);
	return 0;
}

/* Removes a socket that nobody listens on; anything else at the path stays and is an error. */
static int remove_stale(const struct sockaddr_un *address, char *text, size_t size)
{
	struct stat status;
	int probe, r;

	if (lstat(address->sun_path, &status) < 0)
		return errno == ENOENT ? 0 : fail(text, size, address->sun_path, strerror(errno));
	if (!S_ISSOCK(status.st_mode))
		return fail(text, size, address->sun_path, "exists and is not a socket");
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return -errno;
	r = connect(probe, (const struct sockaddr *)address, sizeof(*address)) < 0 ? errno : 0;
	close(probe);
	if (r != ECONNREFUSED)
		return fail(text, size, address->sun_path, "socket path in use: a process listens on it");
	if (unlink(address->sun_path) < 0 && errno != ENOENT)
		return fail(text, size, address->sun_path, strerror(errno));
	return 0;
}

static int bind_socket(const struct sockaddr_un *address, int *ret_fd, char *text, size_t size)
{
	mode_t mode = geteuid() == 0 ? 0666 : 0600, old;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd < 0)
		return -errno;
	/* Nobody can connect before the mode is right. */
	old = umask(0177);
	r = bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? errno : 0;
	umask(old);
	discard_refuse(fd);
	if (!r && (listen(fd, BACKLOG) < 0 || chmod(address->sun_path, mode) < 0))
		r = errno;
	if (r) {
		close(fd);
		return fail(text, size, address->sun_path, strerror(r));
	}
	*ret_fd = fd;
	return 0;
}

static bool find_spare(struct listener *listener)
{
	if (listener->spare < 0)
		listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return listener->spare >= 0;
}

static void stop_listening(struct listener *listener)
{
	userlog_event(listener->daemon, USERLOG_OTHERS, USERLOG_turned_away, LOG_LEVEL_ERROR,
		"clients have to wait: the service has no file descriptors left (LimitNOFILE)");
	watch_pause(listener->watch);
	timer_start(listener->timer, SPARE_MS);
}

/* No descriptor is left: turns a program away, since the loop would spin otherwise. Return: true if
 * a descriptor is reserved again, and more programs may wait */
static bool turn_away(struct listener *listener)
{
	int fd = -1;

	if (listener->spare >= 0) {
		close(listener->spare);
		fd = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC);
		listener->spare = -1;
	}
	if (fd >= 0) {
		discard_socket(fd);
		userlog_event(listener->daemon, USERLOG_OTHERS, USERLOG_turned_away, LOG_LEVEL_ERROR,
			"a client is turned away: the service has no file descriptors left (LimitNOFILE)");
	}
	/* Another thread may have been faster, and the program's may not be closed yet. */
	if (!find_spare(listener)) {
		stop_listening(listener);
		return false;
	}
	return fd >= 0;
}

/* @error: that nobody was accepted for */
static bool may_go_on(struct listener *listener, int error)
{
	if (error == EMFILE || error == ENFILE)
		return turn_away(listener);
	return error == EINTR || error == ECONNABORTED;
}

static void on_readable(void *context)
{
	struct listener *listener = context;

	for (int i = 0; i < ACCEPT_BURST; i++) {
		int fd = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			listener->daemon->accept(listener->daemon, fd);
		else if (!may_go_on(listener, errno))
			break;
	}
}

static int watch(struct listener *listener, const char *path, int fd)
{
	strcpy(listener->path, path);
	lstat(path, &listener->status);
	listener->socket = fd;
	listener->watch = watch_new(listener->daemon->loop, fd, on_readable, listener);
	timer_start(listener->timer, NAME_MS);
	return listener->watch ? 0 : -ENOMEM;
}

/* A program that was not accepted may have sent descriptors, and closing these may wait
 * (loop/discard.h). */
static void turn_all_away(int socket)
{
	int fd;

	/* From here on nobody gets in. */
	shutdown(socket, SHUT_RD);
	while ((fd = accept4(socket, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		discard_socket(fd);
}

/* Closes the parts of `one` that `other` does not have. */
static void drop(const struct listener *one, const struct listener *other)
{
	if (one->watch && one->watch != other->watch) {
		turn_all_away(one->socket);
		watch_free(one->watch);
	}
	if (one->lock >= 0 && one->lock != other->lock)
		close(one->lock);
	if (one->socket_key != other->socket_key)
		store_forget(one->daemon->store, one->socket_key);
	if (one->lock_key != other->lock_key)
		store_forget(one->daemon->store, one->lock_key);
}

/* After a failure the listener may have some of its parts. */
static int start(struct listener *listener, const char *path, char *text, size_t size)
{
	struct store *store = listener->daemon->store;
	struct sockaddr_un address;
	char name[256];
	int fd = -1, r;

	snprintf(name, sizeof(name), "%s.lock", path);
	r = make_address(path, &address, text, size);
	r = r ? r : make_directory(path, text, size);
	if (!r && !is_named(listener->lock, name)) {
		listener->lock = -1;
		r = take_lock(path, &listener->lock, text, size);
		r = r ? r : store_deposit(store, listener->lock, &listener->lock_key);
	}
	r = r ? r : remove_stale(&address, text, size);
	r = r ? r : bind_socket(&address, &fd, text, size);
	if (r)
		return r;
	r = watch(listener, address.sun_path, fd);
	r = r ? r : store_deposit(store, fd, &listener->socket_key);
	if (r)
		unlink(address.sun_path);
	return r;
}

/* For the daemon's record. */
static void publish(const struct listener *listener)
{
	listener->daemon->listener_keys = (struct listener_keys){listener->socket_key, listener->lock_key};
}

/* Somebody has removed the socket, and programs cannot find the service any more. The record names
 * the old descriptors until the new are there. */
static void make_again(struct listener *listener)
{
	struct listener former = *listener, failed;
	char text[256];
	int r = start(listener, former.path, text, sizeof(text));

	if (r) {
		if (!former.is_missed)
			log_error("the socket was removed, and cannot be made again yet: %s",
				r < 0 ? strerror(-r) : text);
		failed = *listener;
		*listener = former;
		listener->is_missed = true;
		drop(&failed, listener);
		return;
	}
	listener->is_missed = false;
	log_warning("socket %s was removed, and is made again", listener->path);
	publish(listener);
	drop(&former, listener);
}

static void on_timer(void *context)
{
	struct listener *listener = context;
	struct stat status;

	if (find_spare(listener))
		watch_resume(listener->watch);
	if (listener->spare >= 0 && lstat(listener->path, &status) < 0 && errno == ENOENT)
		make_again(listener);
	timer_start(listener->timer, listener->spare < 0 ? SPARE_MS : NAME_MS);
}

static struct listener *allocate(struct daemon *daemon)
{
	struct listener *listener = calloc(1, sizeof(*listener));

	if (!listener)
		return NULL;
	listener->timer = timer_new(daemon->loop, on_timer, listener);
	listener->daemon = daemon;
	listener->lock = listener->spare = -1;
	find_spare(listener);
	return listener;
}

int listener_adopt(struct daemon *daemon, const char *path, uint32_t socket_key, uint32_t lock_key,
	struct listener **ret_listener)
{
	int fd = store_take(daemon->store, socket_key);
	struct listener *listener = fd < 0 ? NULL : allocate(daemon);

	if (!listener)
		return fd < 0 ? -EBADF : -ENOMEM;
	listener->lock = store_take(daemon->store, lock_key);
	listener->socket_key = socket_key;
	listener->lock_key = lock_key;
	publish(listener);
	*ret_listener = listener;
	return watch(listener, path, fd);
}

int listener_new(struct daemon *daemon, const char *path, struct listener **ret_listener, char *ret_text,
	size_t text_size)
{
	struct listener *listener = allocate(daemon);
	int r;

	if (!listener)
		return -ENOMEM;
	r = start(listener, path, ret_text, text_size);
	if (r) {
		listener_free(listener);
		return r;
	}
	publish(listener);
	*ret_listener = listener;
	return 0;
}

struct listener *listener_free(struct listener *listener)
{
	struct stat status;
	char name[256];

	if (!listener)
		return NULL;
	if (listener->watch)
		turn_all_away(listener->socket);
	watch_free(listener->watch);
	timer_free(listener->timer);
	if (listener->path[0] && lstat(listener->path, &status) == 0 &&
		status.st_ino == listener->status.st_ino && status.st_dev == listener->status.st_dev)
		unlink(listener->path);
	if (listener->lock >= 0) {
		snprintf(name, sizeof(name), "%s.lock", listener->path);
		if (listener->path[0] && is_named(listener->lock, name))
			unlink(name);
		close(listener->lock);
	}
	listener->daemon->listener_keys = (struct listener_keys){0};
	store_forget(listener->daemon->store, listener->socket_key);
	store_forget(listener->daemon->store, listener->lock_key);
	if (listener->spare >= 0)
		close(listener->spare);
	free(listener);
	return NULL;
}
