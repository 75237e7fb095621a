// In the place of the driver's compiler of PTX: a library with the functions that ptx.c opens. A
// text with "wrong" in it is refused. What is compiled becomes its own text, and the remarks are
// the options.

#include <stdlib.h>
#include <string.h>

struct compiler {
	char *text, remarks[1024];
	const char *errors;
};

int nvPTXCompilerCreate(struct compiler **ret, size_t bytes, const char *text);
int nvPTXCompilerCompile(struct compiler *compiler, int count, const char *const *options);
int nvPTXCompilerDestroy(struct compiler **compiler);
int nvPTXCompilerGetCompiledProgramSize(struct compiler *compiler, size_t *ret);
int nvPTXCompilerGetCompiledProgram(struct compiler *compiler, void *ret);
int nvPTXCompilerGetErrorLogSize(struct compiler *compiler, size_t *ret);
int nvPTXCompilerGetErrorLog(struct compiler *compiler, char *ret);
int nvPTXCompilerGetInfoLogSize(struct compiler *compiler, size_t *ret);
int nvPTXCompilerGetInfoLog(struct compiler *compiler, char *ret);

int nvPTXCompilerCreate(struct compiler **ret, size_t bytes, const char *text)
{
	*ret = calloc(1, sizeof(**ret));
	(*ret)->text = strndup(text, bytes);
	(*ret)->errors = "";
	return 0;
}

int nvPTXCompilerCompile(struct compiler *compiler, int count, const char *const *options)
{
	for (int i = 0; i < count; i++) {
		strcat(compiler->remarks, options[i]);
		strcat(compiler->remarks, "\n");
	}
	if (!strstr(compiler->text, "wrong"))
		return 0;
	compiler->errors = "it is wrong";
	return 3;
}

int nvPTXCompilerDestroy(struct compiler **compiler)
{
	free((*compiler)->text);
	free(*compiler);
	*compiler = NULL;
	return 0;
}

int nvPTXCompilerGetCompiledProgramSize(struct compiler *compiler, size_t *ret)
{
	*ret = strlen(compiler->text);
	return 0;
}

int nvPTXCompilerGetCompiledProgram(struct compiler *compiler, void *ret)
{
	memcpy(ret, compiler->text, strlen(compiler->text));
	return 0;
}

int nvPTXCompilerGetErrorLogSize(struct compiler *compiler, size_t *ret)
{
	*ret = strlen(compiler->errors);
	return 0;
}

int nvPTXCompilerGetErrorLog(struct compiler *compiler, char *ret)
{
	memcpy(ret, compiler->errors, strlen(compiler->errors));
	return 0;
}

int nvPTXCompilerGetInfoLogSize(struct compiler *compiler, size_t *ret)
{
	*ret = strlen(compiler->remarks);
	return 0;
}

int nvPTXCompilerGetInfoLog(struct compiler *compiler, char *ret)
{
	memcpy(ret, compiler->remarks, strlen(compiler->remarks));
	return 0;
}

struct linker {
	char image[4096], remarks[1024];
};

int nvLinkerCreate(struct linker **ret, unsigned count, const char *const *options);
int nvLinkerAddCubin(struct linker *linker, const void *cubin, size_t bytes, const char *name);
int nvLinkerFinish(struct linker *linker);
int nvLinkerDestroy(struct linker **linker);
int nvLinkerGetLinkedCubinSize(struct linker *linker, size_t *ret);
int nvLinkerGetLinkedCubin(struct linker *linker, void *ret);
int nvLinkerGetErrorLogSize(struct linker *linker, size_t *ret);
int nvLinkerGetErrorLog(struct linker *linker, char *ret);
int nvLinkerGetInfoLogSize(struct linker *linker, size_t *ret);
int nvLinkerGetInfoLog(struct linker *linker, char *ret);

int nvLinkerCreate(struct linker **ret, unsigned count, const char *const *options)
{
	*ret = calloc(1, sizeof(**ret));
	/* As the real one. */
	for (unsigned i = 0; i < count; i++)
		if (!strcmp(options[i], "--verbose"))
			return 3;
	for (unsigned i = 0; i < count; i++) {
		strcat((*ret)->remarks, options[i]);
		strcat((*ret)->remarks, "\n");
	}
	return 0;
}

int nvLinkerAddCubin(struct linker *linker, const void *cubin, size_t bytes, const char *name)
{
	(void)name;
	/* Code for one architecture alone. */
	if (strstr(linker->remarks, "a\n"))
		return 11;
	/* A definition that is there already. */
	if (*linker->image && memmem(linker->image, strlen(linker->image), cubin, strnlen(cubin, bytes)))
		return 1;
	strncat(linker->image, cubin, bytes);
	return 0;
}

int nvLinkerFinish(struct linker *linker)
{
	return !linker->image[0];
}

int nvLinkerDestroy(struct linker **linker)
{
	free(*linker);
	*linker = NULL;
	return 0;
}

int nvLinkerGetLinkedCubinSize(struct linker *linker, size_t *ret)
{
	*ret = strlen(linker->image);
	return 0;
}

int nvLinkerGetLinkedCubin(struct linker *linker, void *ret)
{
	memcpy(ret, linker->image, strlen(linker->image));
	return 0;
}

int nvLinkerGetErrorLogSize(struct linker *linker, size_t *ret)
{
	(void)linker;
	*ret = 0;
	return 0;
}

int nvLinkerGetErrorLog(struct linker *linker, char *ret)
{
	(void)linker;
	(void)ret;
	return 0;
}

int nvLinkerGetInfoLogSize(struct linker *linker, size_t *ret)
{
	*ret = strlen(linker->remarks);
	return 0;
}

int nvLinkerGetInfoLog(struct linker *linker, char *ret)
{
	memcpy(ret, linker->remarks, strlen(linker->remarks));
	return 0;
}
