// Looking for ways past the service's library. See past.h. Files may be any bytes: every offset
// into them is checked.

#include "server/tools/past.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/tools/shim.h"

#define LIBRARY "libcuda.so.1"
#define ORIGIN	"$ORIGIN"
#define BRACED	"${ORIGIN}"

/* A file in memory. */
struct file {
	const uint8_t *at;
	size_t bytes;
};

static struct file open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct file file = {NULL, 0};
	struct stat status;

	if (fd < 0)
		return file;
	if (!fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_size > 0) {
		void *at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		if (at != MAP_FAILED)
			file = (struct file){at, (size_t)status.st_size};
	}
	close(fd);
	return file;
}

static void close_file(struct file *file)
{
	if (file->at)
		munmap((void *)(uintptr_t)file->at, file->bytes);
}

/* Return: so many bytes of the file, NULL if the file is shorter */
static const void *part(const struct file *file, uint64_t offset, uint64_t bytes)
{
	return offset <= file->bytes && bytes <= file->bytes - offset ? file->at + offset : NULL;
}

static bool read_header(const struct file *file, Elf64_Ehdr *ret)
{
	const void *at = part(file, 0, sizeof(*ret));

	if (!at)
		return false;
	memcpy(ret, at, sizeof(*ret));
	return !memcmp(ret->e_ident, ELFMAG, SELFMAG) && ret->e_ident[EI_CLASS] == ELFCLASS64 &&
	       ret->e_ident[EI_DATA] == ELFDATA2LSB && ret->e_phentsize == sizeof(Elf64_Phdr);
}

static bool read_segment(const struct file *file, const Elf64_Ehdr *header, unsigned i, Elf64_Phdr *ret)
{
	const void *at = part(file, header->e_phoff, ((uint64_t)i + 1) * sizeof(*ret));

	if (i >= header->e_phnum || !at)
		return false;
	memcpy(ret, (const uint8_t *)at + i * sizeof(*ret), sizeof(*ret));
	return true;
}

/* Where in the file an address of the program is. */
static bool find_address(
	const struct file *file, const Elf64_Ehdr *header, uint64_t address, uint64_t *ret_offset)
{
	Elf64_Phdr segment;

	for (unsigned i = 0; read_segment(file, header, i, &segment); i++)
		if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
			address - segment.p_vaddr < segment.p_filesz) {
			*ret_offset = segment.p_offset + (address - segment.p_vaddr);
			return true;
		}
	return false;
}

/* The dynamic section, for the loader. */
struct dynamic {
	const struct file *file;
	const uint8_t *at;
	uint64_t count, strings;
};

static bool find_entry(const struct dynamic *dynamic, int64_t tag, uint64_t *place, uint64_t *ret_value)
{
	Elf64_Dyn entry;

	for (; *place < dynamic->count; ++*place) {
		memcpy(&entry, dynamic->at + *place * sizeof(entry), sizeof(entry));
		if (entry.d_tag == DT_NULL)
			return false;
		if (entry.d_tag == tag) {
			++*place;
			*ret_value = entry.d_un.d_val;
			return true;
		}
	}
	return false;
}

/* A string of the table, NULL if missing or without an end. */
static const char *text_at(const struct dynamic *dynamic, uint64_t offset)
{
	const struct file *file = dynamic->file;
	uint64_t at;

	if (__builtin_add_overflow(dynamic->strings, offset, &at) || at >= file->bytes ||
		!memchr(file->at + at, 0, file->bytes - at))
		return NULL;
	return (const char *)file->at + at;
}

static bool open_dynamic(const struct file *file, struct dynamic *ret)
{
	uint64_t place = 0, strings;
	Elf64_Phdr segment;
	Elf64_Ehdr header;

	if (!read_header(file, &header))
		return false;
	for (unsigned i = 0; read_segment(file, &header, i, &segment); i++) {
		if (segment.p_type != PT_DYNAMIC)
			continue;
		*ret = (struct dynamic){.file = file,
			.at = part(file, segment.p_offset, segment.p_filesz),
			.count = segment.p_filesz / sizeof(Elf64_Dyn)};
		return ret->at && find_entry(ret, DT_STRTAB, &place, &strings) &&
		       find_address(file, &header, strings, &ret->strings);
	}
	return false;
}

/* A folder of a list, with the executable's own folder filled in. Return: false if unknown */
static bool expand(const char *item, size_t length, const char *program, char ret_path[PATH_MAX])
{
	size_t mark = length >= strlen(ORIGIN) && !strncmp(item, ORIGIN, strlen(ORIGIN))   ? strlen(ORIGIN)
		      : length >= strlen(BRACED) && !strncmp(item, BRACED, strlen(BRACED)) ? strlen(BRACED)
											   : 0;
	char own[PATH_MAX], *end;
	int n;

	if (!realpath(program, own))
		return false;
	end = strrchr(own, '/');
	if (end)
		*end = '\0';
	n = snprintf(
		ret_path, PATH_MAX, "%s%.*s/" LIBRARY, mark ? own : "", (int)(length - mark), item + mark);
	return length && n > 0 && n < PATH_MAX && !strchr(ret_path, '$');
}

/* True if the first libcuda.so.1 in a list of folders is another library than ours. */
static bool leads_past(const char *list, const char *program, char ret_library[PATH_MAX])
{
	size_t length;

	for (; *list; list += length + (list[length] == ':')) {
		length = strcspn(list, ":");
		if (expand(list, length, program, ret_library) && !access(ret_library, R_OK))
			return !shim_is_ours(ret_library);
	}
	return false;
}

static bool is_linked(const struct dynamic *dynamic, char ret_library[PATH_MAX])
{
	uint64_t place = 0, value;

	while (find_entry(dynamic, DT_NEEDED, &place, &value)) {
		const char *name = text_at(dynamic, value), *base = name ? strrchr(name, '/') : NULL;

		if (!base || strncmp(base + 1, "libcuda.so", strlen("libcuda.so")) || shim_is_ours(name))
			continue;
		snprintf(ret_library, PATH_MAX, "%s", name);
		return true;
	}
	return false;
}

static enum past look_at(const struct file *file, const char *path, char ret_library[PATH_MAX])
{
	uint64_t first = 0, second = 0, list;
	struct dynamic dynamic;
	const char *text;

	if (!open_dynamic(file, &dynamic))
		return PAST_NOTHING;
	if (is_linked(&dynamic, ret_library))
		return PAST_NAME;
	/* Beside the newer list the older has no effect. */
	if (find_entry(&dynamic, DT_RUNPATH, &first, &list) ||
		!find_entry(&dynamic, DT_RPATH, &second, &list))
		return PAST_NOTHING;
	text = text_at(&dynamic, list);
	return text && leads_past(text, path, ret_library) ? PAST_FOLDER : PAST_NOTHING;
}

enum past past_of_program(const char *path, char ret_library[PATH_MAX])
{
	struct file file = open_file(path);
	enum past past = look_at(&file, path, ret_library);

	close_file(&file);
	return past;
}

bool past_interpreter(const char *script, char ret_path[PATH_MAX])
{
	char line[PATH_MAX + 2] = "", *begin = line + 2, *last = NULL;
	FILE *file = fopen(script, "re");
	size_t n = file ? fread(line, 1, sizeof(line) - 1, file) : 0;

	if (file)
		fclose(file);
	line[n] = '\0';
	if (strncmp(line, "#!", 2))
		return false;
	line[strcspn(line, "\n")] = '\0';
	begin = strtok_r(begin, " \t", &last);
	/* env looks for the program that is named after its options. */
	if (begin && !strcmp(strrchr(begin, '/') ? strrchr(begin, '/') + 1 : begin, "env"))
		do
			begin = strtok_r(NULL, " \t", &last);
		while (begin && (*begin == '-' || strchr(begin, '=')));
	if (!begin)
		return false;
	snprintf(ret_path, PATH_MAX, "%s", begin);
	return true;
}

/*
 * Processes
 */

/* True if a line of /proc/PID/maps is about another libcuda.so.1. */
static bool is_other(const char *line, const char *process, char seen[PATH_MAX])
{
	char path[3 * PATH_MAX];
	const char *file = strchr(line, '/'), *base = file ? strrchr(file, '/') : NULL;

	if (!base || strncmp(base + 1, "libcuda.so", strlen("libcuda.so")))
		return false;
	/* The library has several parts. */
	if (!strcmp(seen, file))
		return false;
	snprintf(seen, PATH_MAX, "%s", file);
	/* From the process's view, which may be in a container. */
	snprintf(path, sizeof(path), "%s/root%s", process, file);
	return !shim_is_ours(access(path, R_OK) ? file : path);
}

static bool has_other(const char *process)
{
	char path[PATH_MAX + 16], line[PATH_MAX + 128], seen[PATH_MAX] = "";
	bool found = false;
	FILE *maps;

	snprintf(path, sizeof(path), "%s/maps", process);
	maps = fopen(path, "re");
	while (maps && !found && fgets(line, sizeof(line), maps)) {
		line[strcspn(line, "\n")] = '\0';
		found = is_other(line, process, seen);
	}
	if (maps)
		fclose(maps);
	return found;
}

static bool read_name(const char *process, char *name, size_t size)
{
	char path[PATH_MAX + 16];
	FILE *file;
	bool read;

	snprintf(path, sizeof(path), "%s/comm", process);
	file = fopen(path, "re");
	read = file && fgets(name, (int)size, file);
	if (file)
		fclose(file);
	name[read ? strcspn(name, "\n") : 0] = '\0';
	return read;
}

/* The service's processes have the driver. */
static bool is_service(const char *process)
{
	char path[PATH_MAX + 16], program[PATH_MAX], *base;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/exe", process);
	n = readlink(path, program, sizeof(program) - 1);
	if (n < 0)
		return false;
	program[n] = '\0';
	base = strrchr(program, '/');
	return base && !strncmp(base + 1, "frmps-server", strlen("frmps-server"));
}

void past_of_processes(
	const char *root, void (*found)(void *context, pid_t pid, const char *name), void *context)
{
	char path[PATH_MAX], name[64];
	const struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/proc", root);
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "%s/proc/%s", root, entry->d_name);
		if (has_other(path) && !is_service(path) && read_name(path, name, sizeof(name)))
			found(context, (pid_t)atol(entry->d_name), name);
	}
	if (folder)
		closedir(folder);
}
