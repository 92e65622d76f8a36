package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// WrongType returns the error of a decoder with JSON's name of the type that a field has to have, in place of Go's. It
// returns any other error unchanged.
func WrongType(err error) error {
	if at, ok := errors.AsType[*time.ParseError](err); ok {
		return fmt.Errorf(`time %q: not like "2006-01-02T15:04:05Z"`, at.Value)
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return err
	case wrong.Field == "":
		return fmt.Errorf("want %s, not the %s", jsonType(wrong.Type), wrong.Value)
	}
	return fmt.Errorf("%s: want %s, not the %s", wrong.Field, jsonType(wrong.Type), wrong.Value)
}

func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a whole number"
	}
}
