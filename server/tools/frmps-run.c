// frmps-run: runs a program under the service, by putting our libcuda.so.1 in front of the driver's. Fails
// closed: without the service the program is not run, unless --allow-native says that it may then use the GPU
// directly.

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "server/tools/shim.h"
#include "server/version.h"

/* Exit codes of our own; otherwise it is the program's. */
#define EXIT_USAGE	 64
#define EXIT_UNAVAILABLE 69 /* the service is not there */
#define EXIT_REFUSED	 77 /* a program that the loader would not let use our library */
#define EXIT_CANNOT_RUN	 126
#define EXIT_NOT_FOUND	 127

struct options {
	bool allow_native;
	const char *socket, *recovery;
};

static void print_usage(FILE *out)
{
	fputs("usage: frmps-run [--allow-native] [--socket PATH] [--recovery fail|replay] PROGRAM "
	      "[ARGUMENT]...\n"
	      "\n"
	      "Runs PROGRAM with its CUDA calls going to the frmps service.\n"
	      "\n"
	      "  --allow-native     without the service, let PROGRAM use the GPU directly (default: do not "
	      "run it)\n"
	      "  --socket PATH      socket of the service (default: $FRMPS_SOCKET, /run/frmps/frmps.sock,\n"
	      "                     $XDG_RUNTIME_DIR/frmps.sock)\n"
	      "  --recovery fail|replay\n"
	      "                     what happens to PROGRAM's commands that may or may not have run when "
	      "somebody\n"
	      "                     else's fault ended their executor; replay is right only if its kernels "
	      "can be\n"
	      "                     repeated (default: $FRMPS_RECOVERY, else the service's)\n"
	      "  --version, --help\n"
	      "\n"
	      "Exit code: PROGRAM's; 64 wrong usage, 69 no service or no libcuda.so.1 of ours, 77 PROGRAM "
	      "is\n"
	      "set-uid, set-gid or has capabilities, 126 and 127 as a shell's.\n",
		out);
}

/* Return: 0 to go on, or the exit code + 1. */
static int parse(int count, char **arguments, struct options *options)
{
	static const struct option known[] = {{"allow-native", no_argument, NULL, 'n'},
		{"socket", required_argument, NULL, 's'}, {"recovery", required_argument, NULL, 'r'},
		{"version", no_argument, NULL, 'v'}, {"help", no_argument, NULL, 'h'}, {0}};
	int option;

	/* The + ends our options at the program's name. */
	while ((option = getopt_long(count, arguments, "+", known, NULL)) >= 0) {
		switch (option) {
		case 'n':
			options->allow_native = true;
			break;
		case 's':
			options->socket = optarg;
			break;
		case 'r':
			options->recovery = optarg;
			break;
		case 'v':
			puts("frmps-run " SERVER_VERSION);
			return 1;
		case 'h':
			print_usage(stdout);
			return 1;
		default:
			print_usage(stderr);
			return EXIT_USAGE + 1;
		}
	}
	if (options->recovery && strcmp(options->recovery, "fail") && strcmp(options->recovery, "replay")) {
		fprintf(stderr, "frmps-run: --recovery is fail or replay, not \"%s\"\n", options->recovery);
		return EXIT_USAGE + 1;
	}
	if (optind < count)
		return 0;
	print_usage(stderr);
	return EXIT_USAGE + 1;
}

static bool is_program(const char *path, struct stat *status)
{
	return stat(path, status) == 0 && S_ISREG(status->st_mode) && access(path, X_OK) == 0;
}

/* The file that execvp() will run. */
static bool find_program(const char *name, char *path, size_t size, struct stat *status)
{
	const char *list = getenv("PATH");

	if (strchr(name, '/')) {
		snprintf(path, size, "%s", name);
		return is_program(path, status);
	}
	for (const char *at = list ? list : "/bin:/usr/bin"; at;
		at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
		int length = (int)strcspn(at, ":");

		snprintf(path, size, "%.*s%s%s", length, at, length ? "/" : "./", name);
		if (is_program(path, status))
			return true;
	}
	return false;
}

/* Programs that gain rights when they are run: the loader ignores LD_LIBRARY_PATH for them. */
static bool gains_rights(const char *path, const struct stat *status)
{
	char value[64];

	if ((status->st_mode & S_ISUID) && status->st_uid != geteuid())
		return true;
	if ((status->st_mode & S_ISGID) && (status->st_mode & S_IXGRP) && status->st_gid != getegid())
		return true;
	return geteuid() != 0 && getxattr(path, "security.capability", value, sizeof(value)) > 0;
}

static bool set_library_path(const char *directory)
{
	const char *old = getenv("LD_LIBRARY_PATH");
	char *path;
	bool ok;

	if (asprintf(&path, "%s%s%s", directory, old && *old ? ":" : "", old && *old ? old : "") < 0)
		return false;
	ok = setenv("LD_LIBRARY_PATH", path, 1) == 0;
	free(path);
	return ok;
}

/* Everything that sends the program's CUDA calls to the service. Return: 0 or an exit code. */
static int prepare(const struct options *options, const char *socket)
{
	char *directory = shim_directory();

	if (!directory) {
		fprintf(stderr, "frmps-run: libcuda.so.1 of frmps is not found beside this program; "
				"FRMPS_SHIM_DIR can "
				"name its directory\n");
		return EXIT_UNAVAILABLE;
	}
	if (!set_library_path(directory) || setenv("FRMPS_SOCKET", socket, 1) < 0 ||
		(options->recovery && setenv("FRMPS_RECOVERY", options->recovery, 1) < 0)) {
		fprintf(stderr, "frmps-run: out of memory\n");
		free(directory);
		return EXIT_UNAVAILABLE;
	}
	free(directory);
	return 0;
}

static int check_program(const char *name)
{
	char path[PATH_MAX];
	struct stat status;

	if (!find_program(name, path, sizeof(path), &status)) {
		fprintf(stderr, "frmps-run: %s: no such program\n", name);
		return EXIT_NOT_FOUND;
	}
	if (!gains_rights(path, &status))
		return 0;
	fprintf(stderr,
		"frmps-run: %s gains rights when it is run (set-uid, set-gid or capabilities): the loader "
		"would ignore "
		"our library, and it would use the GPU without the service\n",
		path);
	return EXIT_REFUSED;
}

static int run(char **arguments)
{
	int error;

	execvp(arguments[0], arguments);
	error = errno;
	fprintf(stderr, "frmps-run: %s: %s\n", arguments[0], strerror(error));
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

int main(int count, char **arguments)
{
	struct options options = {0};
	char socket[512], text[600];
	int r = parse(count, arguments, &options);

	if (r)
		return r - 1;
	ask_socket_path(options.socket, socket, sizeof(socket));
	if (ask(socket, "ping", NULL, text, sizeof(text))) {
		if (!options.allow_native) {
			fprintf(stderr,
				"frmps-run: %s; %s is not run (--allow-native lets it use the GPU "
				"directly)\n",
				text, arguments[optind]);
			return EXIT_UNAVAILABLE;
		}
		fprintf(stderr, "frmps-run: %s; %s uses the GPU directly, without protection\n", text,
			arguments[optind]);
		return run(arguments + optind);
	}
	r = check_program(arguments[optind]);
	r = r ? r : prepare(&options, socket);
	return r ? r : run(arguments + optind);
}
