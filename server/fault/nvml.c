// See nvml.h. The library's call that waits for events cannot be interrupted, so a thread of its
// own makes the call. The thread shares nothing with the loop: reports go through a socket, in
// records that are written whole. When the loop closes its end, or will write no more, the thread
// ends by itself, at the latest PATIENCE_MS later, and closes the other end: nobody has to wait for
// the thread, and at the end of the process the library's own clean-up waits no longer either.
//
// The thread opens the device's control node and asks for events; no context is made, so no fault
// of a kernel reaches the thread. FRMPS_NVML names another library; an empty name means none. The
// code follows the documented layout of the interface.

#include "server/fault/nvml.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/uuid.h"
#include "server/backend/backend.h"
#include "server/detached.h"
#include "server/fault/kernel_log.h"
#include "server/log.h"
#include "server/loop/watch.h"

#define LIBRARY	    "libnvidia-ml.so.1"
#define PATIENCE_MS 1000u

/* nvml.h */
#define NVML_CRITICAL_XID 8u
#define NVML_TIMEOUT	  10
struct nvml_event {
	void *device;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
};

/* The thread's. */
struct listener {
	int fd; /* of the socket */
	char library[256];
	char uuid[UUID_TEXT]; /* as the library names a device */
	/* Of the library. */
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error)(int code);
	int (*find)(const char *uuid, void **device);
	int (*make)(void **set);
	int (*release)(void *set);
	int (*subscribe)(void *device, unsigned long long types, void *set);
	int (*wait)(void *set, struct nvml_event *event, unsigned ms);
};

enum what { CANNOT, LISTENS, XID };

/* A record. */
struct saying {
	enum what what;
	unsigned number;
	char text[200];
};

struct nvml {
	struct watch *watch;
	int fd; /* the watch's */
	nvml_fn *found;
	void *context;
};

/*
 * The thread
 */

static void say(const struct listener *listener, enum what what, unsigned number, const char *text)
{
	struct saying saying = {.what = what, .number = number};

	snprintf(saying.text, sizeof(saying.text), "%.199s", text);
	/* A reader that is gone, or has stopped reading, misses nothing. */
	if (send(listener->fd, &saying, sizeof(saying), MSG_NOSIGNAL) < 0)
		return;
}

/* Return: whether all is there. */
static bool resolve(struct listener *listener)
{
	void *library = dlopen(listener->library, RTLD_NOW | RTLD_LOCAL);
	const struct {
		const char *name;
		void *to;
	} calls[] = {{"nvmlInit_v2", &listener->init}, {"nvmlShutdown", &listener->shutdown},
		{"nvmlErrorString", &listener->error}, {"nvmlDeviceGetHandleByUUID", &listener->find},
		{"nvmlEventSetCreate", &listener->make}, {"nvmlEventSetFree", &listener->release},
		{"nvmlDeviceRegisterEvents", &listener->subscribe}, {"nvmlEventSetWait_v2", &listener->wait}};

	if (!library) {
		say(listener, CANNOT, 0, "its library cannot be opened");
		return false;
	}
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		void *function = dlsym(library, calls[i].name);

		if (!function) {
			say(listener, CANNOT, 0, "its library is too old");
			return false;
		}
		memcpy(calls[i].to, &function, sizeof(function));
	}
	return true;
}

static bool subscribe(const struct listener *listener, void **ret_set)
{
	void *device, *set = NULL;
	int began = listener->init(), code = began;

	if (!code)
		code = listener->find(listener->uuid, &device);
	if (!code)
		code = listener->make(&set);
	if (!code)
		code = listener->subscribe(device, NVML_CRITICAL_XID, set);
	if (code) {
		say(listener, CANNOT, 0, listener->error(code));
		if (set)
			listener->release(set);
		if (!began)
			listener->shutdown();
		return false;
	}
	say(listener, LISTENS, 0, listener->library);
	*ret_set = set;
	return true;
}

static bool is_heard(const struct listener *listener)
{
	struct pollfd end = {.fd = listener->fd, .events = POLLRDHUP};

	return poll(&end, 1, 0) == 0;
}

static void wait_for_events(const struct listener *listener, void *set)
{
	struct nvml_event event;

	while (is_heard(listener)) {
		int code = listener->wait(set, &event, PATIENCE_MS);

		if (!code && event.type == NVML_CRITICAL_XID) {
			say(listener, XID, (unsigned)event.data, "");
		} else if (code && code != NVML_TIMEOUT) {
			say(listener, CANNOT, 0, listener->error(code));
			return;
		}
	}
}

static void *listen_in_thread(void *argument)
{
	struct listener *listener = argument;
	void *set;

	if (resolve(listener) && subscribe(listener, &set)) {
		wait_for_events(listener, set);
		/* A set keeps the device's file open, beyond the end of the library's use (580). */
		listener->release(set);
		listener->shutdown();
	}
	close(listener->fd);
	free(listener);
	return NULL;
}

/*
 * The loop
 */

static void take(struct nvml *nvml, const struct saying *saying)
{
	struct xid xid = {.number = saying->number,
		.scope = kernel_log_scope(saying->number),
		.code = kernel_log_code(saying->number, "")};

	if (saying->what == CANNOT) {
		log_info("NVML is no witness of faults: %s", saying->text);
	} else if (saying->what == LISTENS) {
		log_info("NVML (%s) is a witness of faults", saying->text);
	} else if (xid.code) {
		snprintf(xid.text, sizeof(xid.text), "Xid %u, by NVML", xid.number);
		nvml->found(nvml->context, &xid);
	}
}

static void on_readable(void *context)
{
	struct nvml *nvml = context;
	struct saying saying;
	ssize_t bytes;

	while ((bytes = read(nvml->fd, &saying, sizeof(saying))) == (ssize_t)sizeof(saying))
		take(nvml, &saying);
	/* The thread has ended, and sent the reason. */
	if (bytes == 0)
		nvml->watch = watch_free(nvml->watch);
}

/* Return: 0 or -errno; the listener is taken over. */
static int start(struct listener *listener)
{
	/* Signals are the loop's. */
	int error = detached_start(listen_in_thread, listener, NULL);

	if (error) {
		close(listener->fd);
		free(listener);
	}
	return error;
}

static struct listener *listener_new(const char *library, const uint8_t *uuid, int fd)
{
	struct listener *listener = calloc(1, sizeof(*listener));

	if (!listener)
		return NULL;
	listener->fd = fd;
	snprintf(listener->library, sizeof(listener->library), "%s", library);
	uuid_text(uuid, listener->uuid);
	return listener;
}

struct nvml *nvml_new(
	struct uv_loop_s *loop, const char *backend, const uint8_t *uuid, nvml_fn *found, void *context)
{
	const char *chosen = getenv("FRMPS_NVML");
	const char *library = chosen ? chosen : strcmp(backend, backend_cuda.name) ? "" : LIBRARY;
	struct nvml *nvml = *library ? calloc(1, sizeof(*nvml)) : NULL;
	struct listener *listener;
	int ends[2];

	if (!nvml || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
		free(nvml);
		return NULL;
	}
	*nvml = (struct nvml){.fd = ends[0], .found = found, .context = context};
	nvml->watch = watch_new(loop, ends[0], on_readable, nvml);
	listener = nvml->watch ? listener_new(library, uuid, ends[1]) : NULL;
	if (!listener)
		close(ends[1]);
	return listener && start(listener) == 0 ? nvml : nvml_free(nvml);
}

bool nvml_stop(struct nvml *nvml)
{
	if (!nvml || !nvml->watch)
		return true;
	shutdown(nvml->fd, SHUT_WR);
	return false;
}

struct nvml *nvml_free(struct nvml *nvml)
{
	if (nvml)
		watch_free(nvml->watch);
	free(nvml);
	return NULL;
}
