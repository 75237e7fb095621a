// frmps-server: one program, several roles. Without --role the process reads options and
// configuration, finds a backend that works and becomes the holder, which forks the daemon and
// outlives each daemon (holder/holder.c); the daemon starts keeper, executors and compilers with
// the options marked internal. With several devices the process becomes the parent of a holder for
// each (parent.c).

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include "protocol/place.h"
#include "server/backend/backend.h"
#include "server/backend/unfit.h"
#include "server/compiler/compiler.h"
#include "server/config/config.h"
#include "server/config/devices.h"
#include "server/daemon_main.h"
#include "server/executor/executor.h"
#include "server/holder/holder.h"
#include "server/keeper/keeper.h"
#include "server/log.h"
#include "server/parent.h"
#include "server/probe.h"
#include "server/prove.h"
#include "server/role.h"
#include "server/tools/manual.h"
#include "server/tools/shim.h"
#include "server/transfer.h"
#include "server/version.h"

/* Open files for the service and one program. */
#define FILES_MIN 512u

/* The driver's start and a context take less than a second, on a machine with many devices
 * several. */
#define PROOF_PATIENCE_MS 30000u

struct options {
	const char *config;
	/* Given on the command line, with the file's keys and values; applied after the file. */
	struct config_setting settings[5];
	unsigned setting_count;
	const char *role, *backend;
	bool only_check;
	int device, control_fd, words_fd;
	unsigned arch;
	uint32_t user;
	enum log_level log_level; /* of a child */
};

/* The last of repeated options holds. */
static void set(struct options *options, const char *key, const char *value)
{
	unsigned i = 0;

	while (i < options->setting_count && strcmp(options->settings[i].key, key) != 0)
		i++;
	options->settings[i] = (struct config_setting){key, value};
	options->setting_count += i == options->setting_count;
}

/* The service's own options, for its children. Return: false for any other option. */
static bool take_internal(struct options *options, int option)
{
	switch (option) {
	case 'R':
		options->role = optarg;
		return true;
	case 'C':
		options->control_fd = atoi(optarg);
		return true;
	case 'W':
		options->words_fd = atoi(optarg);
		return true;
	case 'N':
		options->device = atoi(optarg);
		return true;
	case 'L':
		options->log_level = (enum log_level)atoi(optarg);
		return true;
	case 'U':
		backend_is_unproved = true;
		return true;
	case 'I':
		options->user = (uint32_t)strtoul(optarg, NULL, 10);
		return true;
	case 'A':
		options->arch = (unsigned)strtoul(optarg, NULL, 10);
		return true;
	default:
		return false;
	}
}

/* Return: 0 to go on, or the exit code + 1. */
static int take_option(struct options *options, int option)
{
	switch (option) {
	case 'c':
		options->config = optarg;
		return 0;
	case 's':
		set(options, "socket", optarg);
		return 0;
	case 'b':
		options->backend = optarg;
		set(options, "backend", optarg);
		return 0;
	case 'd':
		set(options, "devices", optarg);
		return 0;
	case 'n':
		set(options, "standbys", optarg);
		return 0;
	case 'l':
		set(options, "log_level", optarg);
		return 0;
	case 'f':
		return 0;
	case 'k':
		options->only_check = true;
		options->config = optarg ? optarg : options->config;
		return 0;
	case 'm':
		config_help(stdout);
		return manual_flush(stdout) + 1;
	case 'v':
		puts("frmps-server " SERVER_VERSION);
		return manual_flush(stdout) + 1;
	case 'h':
		return manual_help(&manual_server, stdout) + 1;
	default:
		return take_internal(options, option) ? 0 : manual_wrong(&manual_server, NULL) + 1;
	}
}

static int parse(int count, char **arguments, struct options *options)
{
	int option, r = 0;

	*options = (struct options){.control_fd = -1, .words_fd = -1, .log_level = LOG_LEVEL_INFO};
	while (!r && (option = manual_option(&manual_server, count, arguments, false)) >= 0)
		r = take_option(options, option);
	/* The file of --check-config. */
	if (!r && optind < count && options->only_check && !options->config)
		options->config = arguments[optind++];
	if (!r && optind < count)
		return manual_wrong(&manual_server, "unexpected argument '%s'", arguments[optind]) + 1;
	return r;
}

/* @ret_text: the error. Return: 0, EX_CONFIG (the file) or EX_USAGE (an option) */
static int configure(const struct options *options, struct config *config, char *ret_text, size_t size)
{
	switch (config_load(
		config, options->config, options->settings, options->setting_count, ret_text, size)) {
	case 0:
		return 0;
	case CONFIG_E_SETTING:
		return EX_USAGE;
	default:
		return EX_CONFIG;
	}
}

static int check_configuration(const struct options *options)
{
	const char *file = options->config ? options->config : CONFIG_DEFAULT_FILE;
	struct config config;
	char text[CONFIG_WRONG_MAX];
	int code = configure(options, &config, text, sizeof(text));

	if (code == EX_USAGE)
		return manual_wrong(&manual_server, "%s", text);
	if (code) {
		fprintf(stderr, "%s\n", text);
		return code;
	}
	printf("%s: %s\n", file,
		access(file, F_OK) < 0 ? "no such file: every key has its default" : "no errors");
	return manual_flush(stdout);
}

struct service {
	struct config config;
	const struct backend_ops *ops;
	char *shim; /* folder of the library; NULL: not found */
	struct probe_answer answer;
	struct devices devices;
	struct heritage heritages[PLACE_DEVICES]; /* of the children of each device */
	unsigned number;			  /* of the device that this process serves */
};

/* Checks if the backend works here. Return: 0, or the exit code after an error line. */
static int try_backend(struct service *service)
{
	char **environment = heritage_environment(environ, service->shim, NULL);
	int r = environment ? probe_ask("/proc/self/exe", service->config.backend, environment,
				      PROBE_PATIENCE_MS, &service->answer)
			    : -ENOMEM;

	heritage_environment_free(environment);
	if (r < 0) {
		log_error("the %s backend cannot be probed: %s", service->ops->name, strerror(-r));
		return EXIT_FAILURE;
	}
	if (service->answer.device_count)
		return 0;
	log_error("the service does not start without a usable GPU (backend = %s): %s", service->ops->name,
		service->answer.text);
	return EX_UNAVAILABLE;
}

/* Logical devices need contexts in several processes. Return: 0, or the exit code after an error
 * line. */
static int check_copies(const struct service *service)
{
	for (unsigned i = 0; i < service->devices.count; i++) {
		const int index = service->devices.list[i].index;

		if (!service->devices.list[i].copy || !(service->answer.exclusive >> index & 1))
			continue;
		log_error("devices: device %d stands there several times, and lets one process have a "
			  "context (compute mode EXCLUSIVE_PROCESS)",
			index);
		return EX_UNAVAILABLE;
	}
	return 0;
}

/* An operator who names a device wants that one; all is what can be had. */
static void report_left(const struct service *service, bool starts)
{
	const struct devices *devices = &service->devices;

	for (unsigned i = 0; i < devices->left_count; i++) {
		const char *text = unfit_text(devices->left[i].unfit),
			   *remedy = unfit_remedy(devices->left[i].unfit);
		const int index = devices->left[i].index;

		if (starts)
			log_warning("GPU %d is left out, and those behind it move up: %s. To do: %s; then "
				    "restart the service",
				index, text, remedy);
		else if (devices->is_all)
			log_error("the service does not start without a usable GPU (backend = %s): GPU %d "
				  "cannot be served: %s. To do: %s",
				service->ops->name, index, text, remedy);
		else
			log_error("devices: GPU %d cannot be served: %s. To do: %s, or name others", index,
				text, remedy);
	}
}

/* Return: 0, or the exit code after an error line. */
static int choose_devices(struct service *service)
{
	const struct probe_answer *answer = &service->answer;
	const struct devices_there there = {
		answer->device_count, (const uint8_t(*)[16])answer->uuids, answer->unfit};
	char text[256];
	int r = devices_find(service->config.devices, &there, &service->devices, text, sizeof(text));

	if (r == DEVICES_E_WRONG) {
		log_error("%s", text);
		return EXIT_FAILURE;
	}
	report_left(service, !r);
	return r ? EX_UNAVAILABLE : check_copies(service);
}

/* The environment of a device's children. Executors and keeper see the chosen GPU alone, which then
 * is number 0. Return: 0, or the exit code after an error line. */
static int make_environment(const struct service *service, int device, struct heritage *heritage)
{
	const bool narrows = service->ops == &backend_cuda;
	char *visible = narrows ? heritage_visible_device(getenv("CUDA_VISIBLE_DEVICES"), device) : NULL;

	heritage->device = narrows ? 0 : device;
	heritage->environment =
		visible || !narrows ? heritage_environment(environ, service->shim, visible) : NULL;
	free(visible);
	if (heritage->environment)
		return 0;
	log_error("there is no memory for the environment of executors");
	return EXIT_FAILURE;
}

/* Before the first executor, so that all are alike, whoever starts them. */
static void prove(struct heritage *heritage)
{
	const struct proof *proof = &heritage->proof;

	prove_ask("/proc/self/exe", heritage, PROOF_PATIENCE_MS);
	if (proof->state == PROOF_GOOD)
		log_info("faults of kernels are contained: proved in %u ms", (unsigned)proof->ms);
	else if (proof->state == PROOF_FAILED)
		log_warning("faults of kernels are not contained, and each one ends its executor: %s",
			proof->why);
	if (heritage->run_as_why[0])
		log_warning("executors run as root, and not as the users of their programs: %s",
			heritage->run_as_why);
}

/* True if the service would get a part of a GPU: the first entry determines the kind of all. */
static bool is_mig(void)
{
	char *visible = heritage_visible_device(getenv("CUDA_VISIBLE_DEVICES"), 0);
	bool is = visible && !strncmp(visible + strspn(visible, " \t"), "MIG-", 4);

	if (is)
		log_error("the service does not start on %s, which CUDA_VISIBLE_DEVICES names: it serves "
			  "whole GPUs, and no MIG devices",
			visible);
	free(visible);
	return is;
}

/* The driver opens its device files while programs run, too. @ret_why: "" or the first file that is
 * not open to every user */
static void look_for_closed_device(char *ret_why, size_t size)
{
	glob_t files = {0};
	struct stat status;

	ret_why[0] = '\0';
	if (glob("/dev/nvidia[0-9]*", 0, NULL, &files) == 0)
		glob("/dev/nvidiactl", GLOB_APPEND, NULL, &files);
	for (size_t i = 0; i < files.gl_pathc && !ret_why[0]; i++)
		if (stat(files.gl_pathv[i], &status) == 0 && (status.st_mode & 06) != 06)
			snprintf(ret_why, size, "%s is not open to every user", files.gl_pathv[i]);
	globfree(&files);
}

static void choose_run_as(const struct backend_ops *ops, struct heritage *heritage)
{
	if (geteuid() != 0)
		return;
	if (ops != &backend_cuda) {
		heritage->run_as = RUN_AS_PROGRAM;
		return;
	}
	look_for_closed_device(heritage->run_as_why, sizeof(heritage->run_as_why));
	heritage->run_as = heritage->run_as_why[0] ? RUN_AS_SERVICE : RUN_AS_USER;
}

static void report_mode(const struct heritage *heritage, int device)
{
	if (heritage->exclusive)
		log_warning("device %d lets one process have a context (compute mode EXCLUSIVE_PROCESS): "
			    "programs of one user at a time, and no spare executor",
			device);
}

/* Puts the number of a device of several into the lines of the log, also of children. @number: -1:
 * none */
static void name_device(const struct service *service, int number)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", number);
	if (number < 0)
		unsetenv(LOG_DEVICE);
	else if (service->devices.count > 1)
		setenv(LOG_DEVICE, name, 1);
	log_init((enum log_level)service->config.log_level, "frmps");
}

/* Fills in the heritage of the children of a device. Return: 0, or the exit code after an error
 * line. */
static int make_heritage(const struct service *service, int device, struct heritage *heritage)
{
	int code;

	*heritage = (struct heritage){.backend = service->ops->name,
		.backend_option = service->config.backend,
		.log_level = (int)service->config.log_level,
		.exclusive = service->answer.exclusive >> device & 1};
	report_mode(heritage, device);
	choose_run_as(service->ops, heritage);
	code = make_environment(service, device, heritage);
	if (!code && service->ops->trial)
		prove(heritage);
	return code;
}

/* The place in the list at which the same device stands first. */
static unsigned find_first(const struct devices *devices, unsigned number)
{
	unsigned first = 0;

	while (devices->list[first].index != devices->list[number].index)
		first++;
	return first;
}

/* Logical devices reach each other as their GPU reaches itself. */
static void note_peers(const struct service *service, unsigned number, struct heritage *heritage)
{
	const struct devices *devices = &service->devices;

	for (unsigned i = 0; i < devices->count; i++)
		heritage->peers[i] =
			i == number
				? 0
				: service->answer.peers[devices->list[number].index][devices->list[i].index];
}

/* Each device is tried once, before programs work there: the verdict holds for the service's whole
 * life, also for logical devices. Return: 0, or the exit code after an error line. */
static int make_heritages(struct service *service)
{
	const struct devices *devices = &service->devices;
	int code = 0;

	for (unsigned i = 0; !code && i < devices->count; i++) {
		struct heritage *heritage = &service->heritages[i];
		const int device = devices->list[i].index;

		name_device(service, (int)i);
		if (devices->list[i].copy) {
			*heritage = service->heritages[find_first(devices, i)];
			code = make_environment(service, device, heritage);
		} else {
			code = make_heritage(service, device, heritage);
		}
		heritage->number = i;
		heritage->count = devices->count;
		heritage->copy = devices->list[i].copy;
		heritage->devices = devices;
		memcpy(heritage->uuid, service->answer.uuids[device], sizeof(heritage->uuid));
		note_peers(service, i, heritage);
	}
	name_device(service, -1);
	return code;
}

static void free_heritages(struct service *service)
{
	for (unsigned i = 0; i < service->devices.count; i++)
		heritage_environment_free(service->heritages[i].environment);
}

/* In a separate process, perhaps not the first. */
static int run_daemon(void *context, const struct legacy *legacy)
{
	struct service *service = context;

	return daemon_main(&service->config, &service->heritages[service->number], legacy);
}

/* With less a service is ready, and refuses every program. */
static bool has_room_for_programs(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max >= FILES_MIN)
		return true;
	log_error("the limit of open files is %llu and must be %u at least; better 20000 (LimitNOFILE of the "
		  "unit, ulimit -n of a shell)",
		(unsigned long long)limit.rlim_max, FILES_MIN);
	return false;
}

/* Serves one device. Return: exit code */
static int serve_device(void *context, unsigned number)
{
	struct service *service = context;

	name_device(service, (int)number);
	service->number = number;
	service->config.rules.device = service->devices.list[number].place;
	return holder_run(run_daemon, service);
}

/* Where a device's socket has no name. Return: 0, or the exit code after an error line. */
static int check_sockets(const struct service *service)
{
	char path[PLACE_BYTES];

	if (place_of_device(service->config.socket, service->devices.count - 1, path) &&
		strlen(path) < sizeof(((struct sockaddr_un *)0)->sun_path))
		return 0;
	log_error("socket: %s is too long for the number of a device behind it", service->config.socket);
	return EX_CONFIG;
}

/* Return: 0, or the exit code after an error line. */
static int choose_backend(struct service *service)
{
	int code;

	service->ops = backend_find(service->config.backend);
	if (!service->ops) {
		log_error("backend: %s", dlerror());
		return EX_CONFIG;
	}
	if (service->ops == &backend_cuda && is_mig())
		return EX_UNAVAILABLE;
	service->shim = shim_directory();
	code = try_backend(service);
	code = code ? code : choose_devices(service);
	code = code ? code : check_sockets(service);
	return code ? code : make_heritages(service);
}

/* Daemons that are started again find the same. Return: 0, or the exit code after an error line. */
static int make_transfers(struct service *service)
{
	struct transfers *transfers = transfers_new();

	for (unsigned i = 0; transfers && i < service->devices.count; i++)
		service->heritages[i].transfers = transfers;
	if (!transfers)
		log_error("there is no memory for what the devices' daemons share");
	return transfers ? 0 : EXIT_FAILURE;
}

/* Configuration and backend are found once: every life of a daemon has the same. */
static int run_service(const struct options *options)
{
	struct service service = {0};
	char text[CONFIG_WRONG_MAX], *rest = text, *line;
	int code;

	unsetenv(LOG_DEVICE);
	log_init(LOG_LEVEL_INFO, "frmps");
	code = configure(options, &service.config, text, sizeof(text));
	if (code == EX_USAGE)
		return manual_wrong(&manual_server, "%s", text);
	while (code && (line = strsep(&rest, "\n")))
		log_error("%s", line);
	if (code)
		return code;
	log_init((enum log_level)service.config.log_level, "frmps");
	if (!has_room_for_programs())
		return EX_CONFIG;
	code = choose_backend(&service);
	if (!code && service.devices.count > 1)
		code = make_transfers(&service);
	if (!code)
		code = service.devices.count == 1 ? serve_device(&service, 0)
						  : parent_run(service.devices.count,
							    service.devices.is_all ? PARENT_SOME : PARENT_ALL,
							    serve_device, &service);
	free_heritages(&service);
	free(service.shim);
	return code;
}

/*
 * The driver places a module's variables by the process's own addresses: with randomised addresses
 * they differ in every executor, and a program that stores such an address could not be moved.
 * Takes effect at the next exec, so the executor starts itself once more. If that is not permitted,
 * the executor goes on unchanged.
 */
static void fix_addresses(char **arguments)
{
	int now = personality(UINT32_MAX);

	if (now < 0 || now & ADDR_NO_RANDOMIZE || personality((unsigned)now | ADDR_NO_RANDOMIZE) < 0)
		return;
	if (personality(UINT32_MAX) & ADDR_NO_RANDOMIZE)
		execv("/proc/self/exe", arguments);
}

static int run_child(const struct options *options, char **arguments)
{
	const struct backend_ops *ops;

	ops = options->backend ? backend_find(options->backend) : NULL;
	if (!ops || options->control_fd < 0) {
		return manual_wrong(&manual_server, "--role is for the service's own use");
	}
	if (strcmp(options->role, "probe") == 0)
		return probe_main(ops, options->control_fd);
	if (strcmp(options->role, "trial") == 0) {
		fix_addresses(arguments);
		log_init(options->log_level, "frmps trial");
		return prove_main(ops, options->device, options->user, options->control_fd);
	}
	/* The daemon answers a signal that goes to all processes of the service, and needs its
	 * children to let programs finish. The children end with the daemon, or at its request. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (strcmp(options->role, "keeper") == 0) {
		log_init(options->log_level, "frmps keeper");
		return keeper_main(ops, options->device, options->control_fd);
	}
	if (strcmp(options->role, "compiler") == 0)
		return compiler_main(ops, options->arch, options->control_fd);
	if (strcmp(options->role, "executor") == 0) {
		fix_addresses(arguments);
		log_init(options->log_level, "frmps executor");
		log_be_relayed();
		return executor_main(ops, options->device, options->control_fd, options->words_fd);
	}
	return manual_wrong(&manual_server, "unknown role '%s'", options->role);
}

int main(int count, char **arguments)
{
	struct options options;
	int r = parse(count, arguments, &options);

	if (r)
		return r - 1;
	if (options.only_check)
		return check_configuration(&options);
	return options.role ? run_child(&options, arguments) : run_service(&options);
}
