// frmps-server: one program, several roles. Without --role it reads options and configuration, asks which
// backend works and becomes the holder, which forks the daemon and outlives it (adopt/holder.c); keeper and
// executors are started by the daemon with the options marked internal.

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

#include "server/adopt/holder.h"
#include "server/backend/backend.h"
#include "server/config/config.h"
#include "server/executor/executor.h"
#include "server/keeper/keeper.h"
#include "server/log.h"
#include "server/probe.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/tools/shim.h"
#include "server/version.h"

/* Exit code where there is no usable GPU. A second try gives the same answer (frmps-server.service). */
#define EXIT_NO_DEVICE 69

enum long_option {
	OPTION_CONFIG = 256,
	OPTION_SOCKET,
	OPTION_BACKEND,
	OPTION_DEVICE,
	OPTION_STANDBYS,
	OPTION_LOG_LEVEL,
	OPTION_FOREGROUND,
	OPTION_HELP_CONFIG,
	OPTION_VERSION,
	OPTION_HELP,
	OPTION_ROLE,
	OPTION_CONTROL_FD,
	OPTION_WORDS_FD,
	OPTION_LOAD_PATIENCE,
	OPTION_CHILD_LOG_LEVEL,
};

struct options {
	const char *config;
	/* Given on the command line, key and value alike to the file's; applied after it. */
	const char *keys[8], *values[8];
	unsigned set_count;
	const char *role, *backend;
	int device, control_fd, words_fd;
	unsigned load_patience_ms;
	enum log_level log_level; /* of a child */
};

static void print_usage(FILE *out)
{
	fputs("usage: frmps-server [OPTION]...\n"
	      "\n"
	      "  --config FILE               configuration (default: " CONFIG_DEFAULT_FILE " if it exists)\n"
	      "  --socket PATH               socket of the service (default: $FRMPS_SOCKET, "
	      "/run/frmps/frmps.sock for\n"
	      "                              root, $XDG_RUNTIME_DIR/frmps.sock for others)\n"
	      "  --backend cuda|host         what runs kernels: the GPU (default), or the processor, for "
	      "trials\n"
	      "  --device N                  number of the GPU (default: 0)\n"
	      "  --standbys N                spare executors per user (default: 1)\n"
	      "  --log-level error|warning|info|debug\n"
	      "  --foreground                accepted; the service never goes to the background by itself\n"
	      "  --help-config               every key of the configuration file, with its default\n"
	      "  --version, --help\n"
	      "\n"
	      "SIGTERM lets clients finish and stops; a second one stops at once.\n"
	      "\n"
	      "Exit code: 0; 1 wrong usage or configuration, or the service failed; 69 there is no usable "
	      "GPU.\n",
		out);
}

static void set(struct options *options, const char *key, const char *value)
{
	if (options->set_count == sizeof(options->keys) / sizeof(options->keys[0]))
		return;
	options->keys[options->set_count] = key;
	options->values[options->set_count++] = value;
}

/* Return: 0 to go on, or the exit code + 1. */
static int take_option(struct options *options, int option)
{
	switch (option) {
	case OPTION_CONFIG:
		options->config = optarg;
		return 0;
	case OPTION_SOCKET:
		set(options, "socket", optarg);
		return 0;
	case OPTION_BACKEND:
		options->backend = optarg;
		set(options, "backend", optarg);
		return 0;
	case OPTION_DEVICE:
		options->device = atoi(optarg);
		set(options, "device", optarg);
		return 0;
	case OPTION_STANDBYS:
		set(options, "standbys", optarg);
		return 0;
	case OPTION_CHILD_LOG_LEVEL:
		options->log_level = (enum log_level)atoi(optarg);
		return 0;
	case OPTION_LOG_LEVEL:
		set(options, "log_level", optarg);
		return 0;
	case OPTION_FOREGROUND:
		return 0;
	case OPTION_ROLE:
		options->role = optarg;
		return 0;
	case OPTION_CONTROL_FD:
		options->control_fd = atoi(optarg);
		return 0;
	case OPTION_WORDS_FD:
		options->words_fd = atoi(optarg);
		return 0;
	case OPTION_LOAD_PATIENCE:
		options->load_patience_ms = (unsigned)strtoul(optarg, NULL, 10);
		return 0;
	case OPTION_HELP_CONFIG:
		config_help(stdout);
		return 1;
	case OPTION_VERSION:
		puts("frmps-server " SERVER_VERSION);
		return 1;
	case OPTION_HELP:
		print_usage(stdout);
		return 1;
	default:
		print_usage(stderr);
		return 2;
	}
}

static int parse(int count, char **arguments, struct options *options)
{
	static const struct option known[] = {
		{"config", required_argument, NULL, OPTION_CONFIG},
		{"socket", required_argument, NULL, OPTION_SOCKET},
		{"backend", required_argument, NULL, OPTION_BACKEND},
		{"device", required_argument, NULL, OPTION_DEVICE},
		{"standbys", required_argument, NULL, OPTION_STANDBYS},
		{"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
		{"foreground", no_argument, NULL, OPTION_FOREGROUND},
		{"help-config", no_argument, NULL, OPTION_HELP_CONFIG},
		{"version", no_argument, NULL, OPTION_VERSION},
		{"help", no_argument, NULL, OPTION_HELP},
		{"role", required_argument, NULL, OPTION_ROLE}, /* internal, as are the next four */
		{"control-fd", required_argument, NULL, OPTION_CONTROL_FD},
		{"words-fd", required_argument, NULL, OPTION_WORDS_FD},
		{"child-log-level", required_argument, NULL, OPTION_CHILD_LOG_LEVEL},
		{"load-patience-ms", required_argument, NULL, OPTION_LOAD_PATIENCE},
		{0},
	};
	int option, r = 0;

	*options = (struct options){.control_fd = -1, .words_fd = -1, .log_level = LOG_LEVEL_INFO};
	while (!r && (option = getopt_long(count, arguments, "", known, NULL)) >= 0)
		r = take_option(options, option);
	if (!r && optind < count) {
		fprintf(stderr, "frmps-server: unexpected argument \"%s\"\n", arguments[optind]);
		return 2;
	}
	return r;
}

static bool configure(const struct options *options, struct config *config)
{
	char text[600];
	int r;

	config_init(config);
	r = config_read(config, options->config ? options->config : CONFIG_DEFAULT_FILE, text, sizeof(text));
	if (r == CONFIG_E_MISSING && !options->config)
		r = 0;
	for (unsigned i = 0; !r && i < options->set_count; i++)
		r = config_set(config, options->keys[i], options->values[i], text, sizeof(text));
	if (!r)
		r = config_default_socket(config, text, sizeof(text));
	if (r)
		log_error("%s", text);
	return !r;
}

/* Whether the backend works here. Return: 0, or the exit code after an error line. */
static int try_backend(const struct config *config, const struct heritage *heritage)
{
	struct probe_answer answer = {0};
	int r = heritage->environment ? probe_ask(heritage->backend, heritage->environment, &answer)
				      : -ENOMEM;

	if (r < 0) {
		log_error("the %s backend cannot be probed: %s", heritage->backend, strerror(-r));
		return EXIT_FAILURE;
	}
	if (!answer.device_count) {
		log_error("the service does not start without a usable GPU (backend = %s): %s",
			heritage->backend, answer.text);
		return EXIT_NO_DEVICE;
	}
	if ((int)config->device < answer.device_count)
		return 0;
	log_error("device %d: there are %d devices", (int)config->device, (int)answer.device_count);
	return EXIT_FAILURE;
}

/* Executors and keeper see the chosen GPU alone, which then is number 0. Return: false without memory */
static bool narrow(const struct config *config, struct heritage *heritage, const char *shim)
{
	char *visible = heritage_visible_device(getenv("CUDA_VISIBLE_DEVICES"), (int)config->device);

	heritage_environment_free(heritage->environment);
	heritage->environment = visible ? heritage_environment(environ, shim, visible) : NULL;
	heritage->device = 0;
	free(visible);
	return heritage->environment != NULL;
}

/* Fills in what children get. Return: 0, or the exit code after an error line. */
static int choose_backend(const struct config *config, struct heritage *heritage)
{
	const struct backend_ops *ops =
		config->backend == CONFIG_BACKEND_HOST ? &backend_host : &backend_cuda;
	char *shim = shim_directory();
	int code;

	*heritage = (struct heritage){.backend = ops->name,
		.device = (int)config->device,
		.log_level = (int)config->log_level,
		.load_patience_ms = (unsigned)config->load_patience_ms,
		.as_user = ops == &backend_host && geteuid() == 0,
		.environment = heritage_environment(environ, shim, NULL)};
	code = try_backend(config, heritage);
	if (!code && ops == &backend_cuda && !narrow(config, heritage, shim)) {
		log_error("there is no memory for the environment of executors");
		code = EXIT_FAILURE;
	}
	free(shim);
	return code;
}

struct service {
	struct config config;
	struct heritage heritage;
};

/* In a process of its own, perhaps not for the first time. */
static int run_daemon(void *context, const struct legacy *legacy)
{
	struct service *service = context;

	return daemon_main(&service->config, &service->heritage, legacy);
}

/* Configuration and backend are found once: every life of the daemon has the same. */
static int run_service(const struct options *options)
{
	struct service service = {0};
	int code;

	log_init(LOG_LEVEL_INFO, "frmps");
	if (!configure(options, &service.config))
		return 1;
	log_init((enum log_level)service.config.log_level, "frmps");
	code = choose_backend(&service.config, &service.heritage);
	if (!code)
		code = holder_run(run_daemon, &service);
	heritage_environment_free(service.heritage.environment);
	return code;
}

/*
 * The driver places a module's variables where the process's own addresses lead it: with randomised addresses
 * they come out differently in every executor, and a program that holds such an address could not be moved.
 * Takes effect at the next exec, so the executor starts itself once more. Where that is not permitted, it
 * goes on as it is.
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
		fprintf(stderr, "frmps-server: --role is for the service's own use\n");
		return 2;
	}
	if (strcmp(options->role, "probe") == 0)
		return probe_main(ops, options->control_fd);
	/* A signal that is sent to all processes of the service is the daemon's to answer: it needs its
	 * children to let clients finish. They end when it says so, or with it. */
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (strcmp(options->role, "keeper") == 0) {
		log_init(options->log_level, "frmps keeper");
		return keeper_main(ops, options->device, options->control_fd);
	}
	if (strcmp(options->role, "executor") == 0) {
		fix_addresses(arguments);
		log_init(options->log_level, "frmps executor");
		return executor_main(ops, options->device, options->control_fd, options->words_fd,
			options->load_patience_ms);
	}
	fprintf(stderr, "frmps-server: unknown role \"%s\"\n", options->role);
	return 2;
}

int main(int count, char **arguments)
{
	struct options options;
	int r = parse(count, arguments, &options);

	if (r)
		return r - 1;
	return options.role ? run_child(&options, arguments) : run_service(&options);
}
