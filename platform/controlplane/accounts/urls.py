"""Log-ins by identity providers. Included by django-allauth, which looks here for the addresses of `provider`."""

from django.urls import path

from controlplane.accounts import identity_views

urlpatterns = [
    path("oidc/<slug:provider_id>/login/", identity_views.login, name="openid_connect_login"),
    path("oidc/<slug:provider_id>/callback/", identity_views.callback, name="openid_connect_callback"),
    path("oidc/<slug:provider_id>/log-out/", identity_views.log_out, name="openid_connect_log_out"),
]
