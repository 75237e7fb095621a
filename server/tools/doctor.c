// See doctor.h. Names are part of the operator's interface: added to, never changed.
//
//   findings	a list
//     check	configuration, driver, compute_mode, exceptions, kernel_log, library, preload, service, device, devices, files, memory, shared_memory, programs
//     level	ok, warning, error
//     text	the finding
//     advice	remedy; only where the level is not ok

#include "server/tools/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "server/backend/unfit.h"
#include "server/config/config.h"
#include "server/config/devices.h"
#include "server/log.h"
#include "server/probe.h"
#include "server/role.h"
#include "server/tools/ask.h"
#include "server/tools/field.h"
#include "server/tools/gpus.h"
#include "server/tools/past.h"
#include "server/tools/shim.h"
#include "server/version.h"

/* Drivers with faults that were contained in trials: the first part of their version. */
#define TRIED_DRIVER "580"
/* A client takes 12 descriptors of the service, and another for each piece of its memory. */
#define FILES_WANTED 65536u
/* The usual need of programs (loaders of data, collectives between processes) for /dev/shm. */
#define SHARED_BYTES (UINT64_C(1) << 30)

enum level { LEVEL_OK, LEVEL_WARNING, LEVEL_ERROR };

struct examination {
	const struct doctor *doctor;
	enum level worst;
	json_t *findings;
	unsigned device;	       /* the first that is served, as CUDA counts */
	char devices[CONFIG_TEXT_MAX]; /* key `devices` */
	bool uses_gpu;		       /* there is a driver to look at */
	json_t *status;		       /* of the service; NULL: no answer */
};

/* @advice: NULL for LEVEL_OK */
static void find(struct examination *e, const char *check, enum level level, const char *advice,
	const char *format, ...) __attribute__((format(printf, 5, 6)));

static void find(struct examination *e, const char *check, enum level level, const char *advice,
	const char *format, ...)
{
	static const char *const names[] = {"ok", "warning", "error"};
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	/* Lines of a file and paths are any bytes. */
	log_clean(text);
	if (*text && text[strlen(text) - 1] == '.')
		text[strlen(text) - 1] = '\0';
	if (level > e->worst)
		e->worst = level;
	if (e->doctor->json)
		json_array_append_new(e->findings, json_pack("{ss ss ss ss*}", "check", check, "level",
							   names[level], "text", text, "advice", advice));
	else
		fprintf(e->doctor->out, "%-7s  %-13s  %s%s%s\n", names[level], check, text,
			advice ? ". To do: " : "", advice ? advice : "");
}

static const char *path_of(const struct examination *e, const char *file, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s%s", e->doctor->root, file);
	return path;
}

/*
 * The machine
 */

static void look_at_configuration(struct examination *e)
{
	char path[PATH_MAX], text[CONFIG_WRONG_MAX], *rest = text, *line;
	struct config config;
	int r;

	config_init(&config);
	r = config_read(&config, path_of(e, CONFIG_DEFAULT_FILE, path), text, sizeof(text));
	e->uses_gpu = config_uses_gpu(&config);
	strcpy(e->devices, config.devices);
	if (!r)
		find(e, "configuration", LEVEL_OK, NULL, "%s has no errors", path);
	else if (r == CONFIG_E_MISSING)
		find(e, "configuration", LEVEL_OK, NULL, "there is no %s: every key has its default", path);
	else
		while ((line = strsep(&rest, "\n")))
			find(e, "configuration", LEVEL_ERROR,
				"correct the line; frmps.conf(5) describes the keys", "%s", line);
}

static void choose_device(struct examination *e, const struct probe_answer *answer)
{
	const struct devices_there there = {
		answer->device_count, (const uint8_t(*)[16])answer->uuids, answer->unfit};
	struct devices devices;
	char text[256];

	if (!answer->device_count)
		return;
	switch (devices_find(e->devices, &there, &devices, text, sizeof(text))) {
	case 0:
		e->device = (unsigned)devices.list[0].index;
		break;
	case DEVICES_E_UNFIT:
		find(e, "driver", LEVEL_ERROR, unfit_remedy(devices.left[0].unfit), "%s", text);
		break;
	default:
		find(e, "configuration", LEVEL_ERROR, "correct the key devices", "%s", text);
	}
}

/* The cost of the compute mode. @answer: the driver's; without devices if the driver was not
 * asked */
static void look_at_mode(struct examination *e, const struct probe_answer *answer)
{
	const char *served =
		json_string_value(json_object_get(json_object_get(e->status, "device"), "compute_mode"));
	const bool exclusive = answer->exclusive >> e->device & 1, asked = answer->device_count;

	if (served && asked && exclusive != !strcmp(served, "exclusive"))
		find(e, "compute_mode", LEVEL_WARNING, "restart the service",
			"the GPU's compute mode was changed after the service had started");
	else if (exclusive || (served && !strcmp(served, "exclusive")))
		find(e, "compute_mode", LEVEL_WARNING,
			"nvidia-smi -c DEFAULT, then restart the service, unless other processes must be "
			"kept off",
			"the GPU lets one process have a context (EXCLUSIVE_PROCESS): programs of one user "
			"at a time, none in an executor of its own, and no spare executor: a fault that is "
			"not contained costs everybody the start of one");
	else if (served || asked)
		find(e, "compute_mode", LEVEL_OK, NULL, "several processes may have contexts");
}

static void look_at_gpus(struct examination *e, const struct probe_answer *answer)
{
	int fit = 0;

	for (int i = 0; i < answer->device_count; i++)
		if (answer->unfit[i])
			find(e, "driver", LEVEL_WARNING, unfit_remedy(answer->unfit[i]),
				"GPU %d cannot be served: %s", i, unfit_text(answer->unfit[i]));
		else
			fit++;
	if (fit)
		find(e, "driver", LEVEL_OK, NULL, "%d GPU%s can be served", fit, fit > 1 ? "s" : "");
}

static void look_at_driver(struct examination *e)
{
	char *shim = shim_directory(), **environment = heritage_environment(environ, shim, NULL);
	struct probe_answer answer = {0};
	int r = 0;

	free(shim);
	if (!e->uses_gpu)
		find(e, "driver", LEVEL_OK, NULL, "none is needed: kernels do not run on the GPU (backend)");
	else if (!e->doctor->server)
		find(e, "driver", LEVEL_ERROR, "install the whole service below one prefix",
			"frmps-server, which would be asked, is not found beside this program");
	else if (!environment ||
		 (r = probe_ask(e->doctor->server, "cuda", environment, PROBE_PATIENCE_MS, &answer)) < 0)
		find(e, "driver", LEVEL_ERROR, "look at the limits of processes and memory",
			"the driver cannot be asked: %s", strerror(r ? -r : ENOMEM));
	else if (!answer.device_count)
		find(e, "driver", LEVEL_ERROR,
			"install the NVIDIA driver, or let this container see the GPU; nvidia-smi must list "
			"it",
			"no usable GPU: %s", answer.text);
	else
		look_at_gpus(e, &answer);
	heritage_environment_free(environment);
	choose_device(e, &answer);
	look_at_mode(e, &answer);
}

/* Containment depends on internals of the driver, which no interface promises. */
static void look_at_exceptions(struct examination *e)
{
	char path[PATH_MAX], version[64] = "";
	FILE *file = fopen(path_of(e, "/sys/module/nvidia/version", path), "re");

	if (file && !fgets(version, sizeof(version), file))
		version[0] = '\0';
	if (file)
		fclose(file);
	version[strcspn(version, "\n")] = '\0';
	if (!version[0])
		return; /* look_at_driver() has reported already */
	if (!strncmp(version, TRIED_DRIVER ".", strlen(TRIED_DRIVER ".")))
		find(e, "exceptions", LEVEL_OK, NULL, "faults are contained with driver %s", version);
	else
		find(e, "exceptions", LEVEL_WARNING,
			"try a fault beside a program that matters before you rely on it",
			"containing faults was tried with driver " TRIED_DRIVER " and not with %s", version);
}

static void look_at_kernel_log(struct examination *e)
{
	char path[PATH_MAX];
	int fd;

	if (!e->uses_gpu)
		return;
	fd = open(path_of(e, "/dev/kmsg", path), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0) {
		find(e, "kernel_log", LEVEL_OK, NULL, "can be read");
		close(fd);
		return;
	}
	find(e, "kernel_log", LEVEL_WARNING,
		"run the service as root or give it CAP_SYSLOG; as another user than the service's, run this "
		"again as root",
		"%s cannot be read (%s): faults are found by the driver's answers alone", path,
		strerror(errno));
}

static void look_at_library(struct examination *e)
{
	const char *preload = getenv("LD_PRELOAD");
	char *directory = shim_directory(), path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/libcuda.so.1", directory ? directory : "");
	if (!directory)
		find(e, "library", LEVEL_ERROR,
			"install the whole service below one prefix, or let FRMPS_SHIM_DIR name the "
			"directory",
			"the service's libcuda.so.1 is not found");
	else if (shim_is_ours(path))
		find(e, "library", LEVEL_OK, NULL, "frmps-run loads %s", path);
	else
		find(e, "library", LEVEL_ERROR, "install the service again, or correct FRMPS_SHIM_DIR",
			"frmps-run would load %s, which is not the service's", path);
	free(directory);
	if (preload && strstr(preload, "libcuda.so"))
		find(e, "preload", LEVEL_ERROR, "unset LD_PRELOAD",
			"LD_PRELOAD=%s loads another library before the service's", preload);
}

/* Processes that have got past the service: as many as fit into a line. */
struct others {
	unsigned count;
	size_t used;
	char text[256];
};

static void note_other(void *context, pid_t pid, const char *name)
{
	struct others *others = context;
	int n = snprintf(others->text + others->used, sizeof(others->text) - others->used, "%s%ld (%s)",
		others->count ? ", " : "", (long)pid, name);

	others->count++;
	if (n > 0 && (size_t)n < sizeof(others->text) - others->used)
		others->used += (size_t)n;
	else
		others->text[others->used] = '\0';
}

static void look_at_programs(struct examination *e)
{
	struct others others = {0};

	past_of_processes(e->doctor->root, note_other, &others);
	if (others.count)
		find(e, "programs", LEVEL_WARNING,
			"start them with frmps-run; server/README.md says what gets past it and how to make "
			"that impossible",
			"%u process%s the driver's library without the service: %s", others.count,
			others.count == 1 ? " uses" : "es use", others.text);
	else
		find(e, "programs", LEVEL_OK, NULL,
			"no process that can be seen uses the driver's library without the service");
}

static void look_at_shared_memory(struct examination *e)
{
	char path[PATH_MAX];
	struct statvfs status;
	uint64_t bytes;
	int fd = memfd_create("frmps-doctor", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, 1 << 21) < 0)
		find(e, "shared_memory", LEVEL_ERROR, "permit memfd_create() (seccomp), or give more memory",
			"memory cannot be shared between processes: %s", strerror(errno));
	else if (statvfs(path_of(e, "/dev/shm", path), &status) < 0)
		find(e, "shared_memory", LEVEL_WARNING, "mount a tmpfs there: programs may need it",
			"the service can share memory; %s: %s", path, strerror(errno));
	else if ((bytes = (uint64_t)status.f_frsize * status.f_blocks) < SHARED_BYTES)
		find(e, "shared_memory", LEVEL_WARNING,
			"give it more (docker: --shm-size): programs that load data in processes of their "
			"own need it",
			"the service can share memory; %s has %llu MiB only", path,
			(unsigned long long)(bytes >> 20));
	else
		find(e, "shared_memory", LEVEL_OK, NULL,
			"the service can share memory; /dev/shm has %llu MiB",
			(unsigned long long)(bytes >> 20));
	if (fd >= 0)
		close(fd);
}

/*
 * The service
 */

/* ask() reports the outcome of a connection, but not the reason why it is not permitted. */
static const char *advise_connection(const char *socket)
{
	if (access(socket, F_OK) < 0 && errno == EACCES)
		return "permit the way to the socket (x for the directories)";
	if (access(socket, F_OK) < 0)
		return "start it (systemctl start frmps-server), or name its socket with --socket or "
		       "FRMPS_SOCKET";
	if (access(socket, W_OK) < 0)
		return "permit the socket: who uses the service must be allowed to write it";
	return "start it again (systemctl restart frmps-server); its log says why it does not answer";
}

static void look_at_service(struct examination *e)
{
	const char *socket = e->doctor->socket, *version, *backend, *state;
	char text[400], *answer = NULL;
	const json_t *device;

	if (ask(socket, "status", &answer, text, sizeof(text))) {
		find(e, "service", LEVEL_ERROR, advise_connection(socket), "%s", text);
		return;
	}
	e->status = json_loads(answer, 0, NULL);
	free(answer);
	version = json_string_value(json_object_get(e->status, "version"));
	backend = json_string_value(json_object_get(e->status, "backend"));
	if (backend)
		e->uses_gpu = !strcmp(backend, CONFIG_BACKEND_CUDA);
	device = json_object_get(e->status, "device");
	state = json_string_value(json_object_get(device, "state"));
	state = state ? state : "";
	if (!version)
		find(e, "service", LEVEL_ERROR, "install service and tools of one version",
			"the answer of the service at %s is not understood", socket);
	else if (strcmp(version, SERVER_VERSION))
		find(e, "service", LEVEL_WARNING, "restart the service after an upgrade",
			"the service at %s has version %s, this program %s", socket, version, SERVER_VERSION);
	else
		find(e, "service", LEVEL_OK, NULL, "version %s answers at %s", version, socket);
	if (!strcmp(state, "failed"))
		find(e, "device", LEVEL_ERROR,
			"see that the GPU works again (reset, reboot), then restart the service",
			"the service has given the device up: %s",
			json_string_value(json_object_get(device, "reason")));
	if (!strcmp(state, "drained"))
		find(e, "device", LEVEL_WARNING, "frmpsctl refill",
			"an operator has the device drained: programs wait, and no new one is served");
}

/* NVML shows programs all GPUs of the machine. */
static void compare_with_machine(struct examination *e, unsigned count)
{
	const unsigned gpus = gpus_count(e->doctor->root);

	if (e->uses_gpu && count < gpus)
		find(e, "devices", LEVEL_OK, NULL,
			"the service has %u of the machine's %u GPUs: frmps-run hides the others from "
			"programs",
			count, gpus);
}

/* What the driver says about them now may be something else. */
static void look_at_left_out(struct examination *e)
{
	size_t index;
	json_t *one;

	json_array_foreach (json_object_get(e->status, "left_out"), index, one) {
		char advice[256];

		snprintf(advice, sizeof(advice), "%s; then restart the service",
			field_text(one, "remedy", "-"));
		find(e, "devices", LEVEL_WARNING, advice, "the service has left GPU %lld out: %s",
			field_number(one, "gpu"), field_text(one, "reason", "-"));
	}
}

/* The service's devices, each of which has a daemon of its own. */
static void look_at_devices(struct examination *e)
{
	struct ask_devices devices;

	if (ask_devices(e->doctor->socket, true, &devices))
		return;
	compare_with_machine(e, devices.count);
	for (unsigned i = 0; i < devices.count && devices.count > 1; i++)
		if (*devices.uuid[i])
			find(e, "devices", LEVEL_OK, NULL, "device %u (%s) answers", i, devices.uuid[i]);
		else
			find(e, "devices", LEVEL_ERROR,
				"the service's log says why; frmpsctl --device looks at a single one",
				"device %u of %u does not answer", i, devices.count);
}

/* Return: the soft limit, UINT64_MAX for none; 0 if unknown */
static uint64_t read_limit(FILE *limits, const char *name)
{
	char line[256], *value;

	rewind(limits);
	while (fgets(line, sizeof(line), limits)) {
		if (strncmp(line, name, strlen(name)))
			continue;
		value = line + strlen(name) + strspn(line + strlen(name), " ");
		return strncmp(value, "unlimited", 9) ? strtoull(value, NULL, 10) : UINT64_MAX;
	}
	return 0;
}

static void look_at_limits(struct examination *e)
{
	long long pid = json_integer_value(json_object_get(e->status, "pid"));
	char name[64], path[PATH_MAX];
	uint64_t files, memory;
	struct stat owner;
	FILE *limits;

	if (!pid)
		return;
	snprintf(name, sizeof(name), "/proc/%lld/limits", pid);
	limits = fopen(path_of(e, name, path), "re");
	if (!limits || fstat(fileno(limits), &owner) < 0) {
		find(e, "files", LEVEL_WARNING, "run this where the service's process can be seen",
			"limits of the service are not known: %s: %s", path, strerror(errno));
		if (limits)
			fclose(limits);
		return;
	}
	files = read_limit(limits, "Max open files");
	memory = read_limit(limits, "Max locked memory");
	fclose(limits);
	if (files < FILES_WANTED)
		find(e, "files", LEVEL_WARNING, "raise it (LimitNOFILE=1048576 in the unit, ulimit -n)",
			"the service may open %llu files: enough for some %llu programs with little memory",
			(unsigned long long)files, (unsigned long long)files / 16);
	else
		find(e, "files", LEVEL_OK, NULL, "the service may open %llu files",
			(unsigned long long)files);
	/* Root may lock any amount. */
	if (memory != UINT64_MAX && owner.st_uid)
		find(e, "memory", LEVEL_WARNING, "raise it (LimitMEMLOCK=infinity in the unit, ulimit -l)",
			"the service may lock %llu MiB of memory: pinned memory of programs may fail",
			(unsigned long long)memory >> 20);
	else
		find(e, "memory", LEVEL_OK, NULL, "the service may lock as much memory as there is");
}

int doctor_run(const struct doctor *doctor)
{
	struct examination e = {.doctor = doctor, .findings = json_array()};
	json_t *root;

	look_at_configuration(&e);
	look_at_service(&e);
	look_at_devices(&e);
	look_at_left_out(&e);
	look_at_limits(&e);
	look_at_driver(&e);
	look_at_exceptions(&e);
	look_at_kernel_log(&e);
	look_at_library(&e);
	look_at_shared_memory(&e);
	look_at_programs(&e);
	root = json_pack("{so}", "findings", e.findings);
	if (doctor->json && root) {
		json_dumpf(root, doctor->out, JSON_INDENT(2));
		fputc('\n', doctor->out);
	}
	json_decref(root);
	json_decref(e.status);
	return e.worst == LEVEL_ERROR || fflush(doctor->out) ? 1 : 0;
}
